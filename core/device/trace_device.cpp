#include "core/device/trace_device.hpp"

#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/device/device_decorator.hpp"

namespace sluice {
namespace {

std::string as_json(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

const char* category(Resource on) {
  switch (on) {
    case Resource::h2d: return "h2d";
    case Resource::d2h: return "d2h";
    case Resource::compute: return "compute";
    case Resource::host: return "host";
  }
  return "";
}

// A file of events. Times in it begin with 0.
class TraceFile {
 public:
  TraceFile(const std::filesystem::path& path, std::uint64_t start_ns)
      : path_(path), start_ns_(start_ns), out_(path, std::ios::binary) {
    if (!out_) throw InputError("{}: the trace cannot be written there", path.string());
    out_ << R"({"displayTimeUnit":"ns","traceEvents":[)" << '\n'
         << R"({"ph":"M","name":"process_name","pid":0,"args":{"name":"sluice"}})";
  }

  void name_track(StreamId track, const std::string& name) {
    next() << fmt::format(
        R"({{"ph":"M","name":"thread_name","pid":0,"tid":{},"args":{{"name":{}}}}})", track,
        as_json(name));
    next() << fmt::format(
        R"({{"ph":"M","name":"thread_sort_index","pid":0,"tid":{0},"args":{{"sort_index":{0}}}}})",
        track);
  }

  void span(StreamId track, const std::string& name, const char* cat, const OpTimes& times,
            const std::string& args) {
    next() << fmt::format(
        R"({{"ph":"X","name":{},"cat":"{}","pid":0,"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
        as_json(name), cat, track, micros(times.begin_ns - start_ns_),
        micros(times.end_ns - times.begin_ns), args);
  }

  void end() {
    out_ << "\n]}\n";
    out_.close();
    if (!out_) throw Error("{}: the trace could not be written to its end", path_.string());
  }

 private:
  std::ostream& next() { return out_ << ",\n"; }
  static std::string micros(std::uint64_t ns) {
    return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
  }

  std::filesystem::path path_;
  std::uint64_t start_ns_;
  std::ofstream out_;
};

class Trace final : public DeviceDecorator<TraceDevice> {
 public:
  Trace(IDevice& below, const std::filesystem::path& file, std::vector<std::string> units)
      : DeviceDecorator(below), units_(std::move(units)), file_(file, below.now_ns()) {
    tracks_.emplace_back();
    file_.name_track(kHostLine, "host");
  }
  ~Trace() override {
    try {
      if (!finished_) finish();
    } catch (...) {  // a trace that was given up; whoever wants it whole calls finish()
    }
  }

  void begin_section(const std::string& name) override {
    end_section();
    section_ = name;
    section_begin_ns_ = below_.now_ns();
  }

  void finish() override {
    finished_ = true;
    end_section();
    file_.end();
  }

  StreamId make_stream(Resource resource, const char* name) override {
    const StreamId stream = below_.make_stream(resource, name);
    below_.keep_times(stream);
    if (tracks_.size() <= stream) tracks_.resize(stream + std::size_t{1});
    tracks_[stream].name = name;
    file_.name_track(stream, name);
    return stream;
  }

  // Each operation by itself, so that it has its times.
  std::unique_ptr<Repeated> make_repeated(StreamId) override {
    return std::make_unique<Repeated>();
  }
  void enqueue(StreamId stream, const Op& op, const Body& body) override {
    expect(stream, op);
    below_.enqueue(stream, op, body);
  }

  void copy(StreamId stream, const Op& op, void* to, const void* from,
            std::uint64_t bytes) override {
    expect(stream, op);
    below_.copy(stream, op, to, from, bytes);
  }

  void wait(StreamId stream, Event event, WaitFor why) override {
    if (why == WaitFor::weights && event.position != 0 && event.stream != stream)
      tracks_[stream].expected.push_back({.wait_on = event.stream});
    below_.wait(stream, event, why);
  }

  void sync(Event event) override {
    waits_for(event.position != 0 ? event.stream : kHostLine, [&] { below_.sync(event); });
  }
  void await(StreamId stream, const Signal& signal) override {
    waits_for(stream, [&] { below_.await(stream, signal); });
  }

 private:
  // Something whose times the device will give.
  struct Expected {
    const char* name = "";
    UnitId unit = kNoUnit;
    Resource on = Resource::compute;
    std::uint64_t bytes = 0, flops = 0;
    StreamId wait_on = kHostLine;  // of a wait for weights
  };
  struct Track {
    std::string name = "host";
    std::deque<Expected> expected;
  };

  // The host's line: nothing is to be waited for.
  template <typename F>
  void waits_for(StreamId stream, const F& wait) {
    const std::uint64_t begin = below_.now_ns();
    wait();
    if (stream != kHostLine)
      file_.span(kHostLine, "wait", "host", {begin, below_.now_ns()},
                 fmt::format(R"("for":{})", as_json(tracks_.at(stream).name)));
    collect();
  }

  void expect(StreamId stream, const Op& op) {
    tracks_[stream].expected.push_back({op.name, op.unit, op.on, op.bytes, op.flops, kHostLine});
  }

  void collect() {
    for (StreamId stream = 1; stream < tracks_.size(); ++stream) {
      std::deque<Expected>& expected = tracks_[stream].expected;
      for (const OpTimes& times : below_.take_times(stream)) {
        write(stream, expected.front(), times);
        expected.pop_front();
      }
    }
  }

  void write(StreamId stream, const Expected& op, const OpTimes& times) {
    if (op.wait_on != kHostLine) {
      if (times.end_ns == times.begin_ns) return;
      file_.span(stream, "wait for weights", "stall", times,
                 fmt::format(R"("for":{})", as_json(tracks_[op.wait_on].name)));
      return;
    }
    std::string args = fmt::format(R"("bytes":{},"flops":{})", op.bytes, op.flops);
    if (op.unit < units_.size()) args += fmt::format(R"(,"unit":{})", as_json(units_[op.unit]));
    file_.span(stream, op.name, category(op.on), times, args);
  }

  void end_section() {
    for (StreamId stream = 1; stream < tracks_.size(); ++stream) below_.sync(below_.record(stream));
    collect();
    if (!section_.empty())
      file_.span(kHostLine, section_, "section", {section_begin_ns_, below_.now_ns()}, "");
    section_.clear();
  }

  std::vector<std::string> units_;
  TraceFile file_;
  std::vector<Track> tracks_;  // index: StreamId
  std::string section_;        // empty: none
  std::uint64_t section_begin_ns_ = 0;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<TraceDevice> make_trace_device(IDevice& below, const std::filesystem::path& file,
                                               std::vector<std::string> units) {
  return std::make_unique<Trace>(below, file, std::move(units));
}

}  // namespace sluice
