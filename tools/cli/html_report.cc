#include "tools/cli/html_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "tools/cli/command.h"

namespace cli {
namespace {

using nlohmann::json;

constexpr char kStyle[] =
    "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1b1f24}"
    "h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;padding:.2rem .6rem;border-bottom:1px solid #d8dee4;vertical-align:top}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}code{font-size:.85em;word-break:break-all}"
    ".bad{color:#b3261e;font-weight:600}.good{color:#1a7f37;font-weight:600}svg{background:#f6f8fa;width:100%}";

std::string escaped(const std::string& raw) {
  std::string out;
  for (const char c : raw) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string field(const json& object, const char* key) { return escaped(text(object, key)); }
std::string count_field(const json& object, const char* key) { return count_text(integer(object, key)); }

std::string real(double value, const char* format = "%.6g") {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

std::string row(const std::string& name, const std::string& value) {
  return "<tr><th>" + name + "</th><td>" + value + "</td></tr>\n";
}

std::string verdict(bool good, const std::string& when_good, const std::string& when_bad) {
  return good ? "<span class=good>" + when_good + "</span>" : "<span class=bad>" + when_bad + "</span>";
}

std::string summary(const json& report) {
  std::string out =
      "<table>\n" + row("source", "<code>" + field(report, "source") + "</code>") +
      row("result", "<code>" + field(report, "destination") + "</code>") + row("layout", field(report, "layout")) +
      row("arithmetic", field(report, "arithmetic")) +
      row("tensors", count_field(report, "tensors_read") + " read, " + count_field(report, "tensors_written") +
                         " written, " + count_field(report, "scales_used") + " scales used up") +
      row("bytes", bytes_text(number(report, "bytes_read")) + " read, " + bytes_text(number(report, "bytes_written")) +
                       " written in " + real(number(report, "seconds"), "%.2f") + " s");
  const long long checked = integer(report, "reencode_checked"), wrong = integer(report, "reencode_mismatched");
  if (checked > 0) {
    out += row("encoded again", verdict(wrong == 0, "all " + count_text(checked) + " checked results give their code",
                                        count_text(wrong) + " of " + count_text(checked) + " give another code"));
  }
  if (integer(report, "nan_codes") > 0) out += row("NaN codes", verdict(false, "", count_field(report, "nan_codes")));
  if (report.contains("verification")) {
    const json& proof = report["verification"];
    out += row("verified",
               verdict(proof.value("passed", false), count_field(proof, "elements") + " elements equal to the source",
                       count_field(proof, "problem_count") + " problems"));
  }
  if (report.contains("calibration")) {
    const json& c = report["calibration"];
    out += row("calibration", verdict(c.value("passed", false), "passed", "failed: " + field(c, "verdict")) +
                                  ", loss " + real(number(c, "source_loss")) + " to " +
                                  real(number(c, "destination_loss")) + " on " + count_field(c, "tokens") +
                                  " tokens, mean KL " + real(number(c, "kl_mean"), "%.3g") + " nats");
  }
  return out + row("made by", "invar " + field(report, "invar_version")) + "</table>\n";
}

// Codes in the order of their values: negative ones from the largest magnitude down, then positive ones upwards. Bars
// are on a logarithmic scale, as a few codes near zero outweigh all others.
std::string picture(const json& histogram) {
  std::vector<double> counts;
  for (const auto& count : histogram.value("counts", json::array())) {
    counts.push_back(count.is_string() ? std::strtod(count.get<std::string>().c_str(), nullptr) : count.get<double>());
  }
  const size_t half = counts.size() / 2;
  std::vector<double> ordered;
  for (size_t i = 0; i < half; ++i) ordered.push_back(counts[counts.size() - 1 - i]);
  ordered.insert(ordered.end(), counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(half));
  const double top = std::log1p(counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end()));
  const double height = 120, width = counts.size() > 16 ? 4 : 40;
  std::string out = "<svg viewBox=\"0 0 " + real(width * static_cast<double>(ordered.size()), "%.0f") +
                    " 120\" preserveAspectRatio=none height=120 role=img>";
  for (size_t i = 0; i < ordered.size(); ++i) {
    const double bar = top > 0 ? height * std::log1p(ordered[i]) / top : 0;
    if (bar <= 0) continue;
    out += "<rect x=" + real(static_cast<double>(i) * width, "%.0f") + " y=" + real(height - bar, "%.1f") +
           " width=" + real(width - 1, "%.0f") + " height=" + real(bar, "%.1f") + " fill=\"#0969da\"/>";
  }
  return out + "</svg>\n";
}

std::string histograms(const json& report) {
  std::string out;
  for (const auto& histogram : report.value("histograms", json::array())) {
    out += "<h2>Codes of " + field(histogram, "kind") + ", " + count_field(histogram, "tensors") +
           " tensors</h2>\n<p>From the most negative value to the largest; heights are logarithms of counts.</p>\n" +
           picture(histogram);
  }
  return out;
}

std::string rules(const json& report) {
  std::string out =
      "<h2>Rules</h2>\n<table><tr><th>rule</th><th class=n>tensors</th><th class=n>elements</th>"
      "<th class=n>bytes</th></tr>\n";
  for (const auto& rule : report.value("rules", json::array())) {
    out += "<tr><td>" + field(rule, "rule") + "</td><td class=n>" + count_field(rule, "tensors") + "</td><td class=n>" +
           count_field(rule, "elements") + "</td><td class=n>" + bytes_text(number(rule, "bytes")) + "</td></tr>\n";
  }
  return out + "</table>\n";
}

std::string warnings(const json& report) {
  std::string out;
  for (const auto& warning : report.value("warnings", json::array())) {
    out += "<li>" + escaped(warning.get<std::string>()) + "</li>\n";
  }
  return out.empty() ? "" : "<h2>Warnings</h2>\n<ul>\n" + out + "</ul>\n";
}

std::string tensors(const json& report) {
  std::string out =
      "<h2>Tensors</h2>\n<table><tr><th>tensor</th><th>rule</th><th>dtype</th><th>shape</th><th class=n>zero</th>"
      "<th class=n>largest</th><th class=n>NaN</th><th>checksums, source and result</th></tr>\n";
  for (const auto& tensor : report.value("tensors", json::array())) {
    std::string shape, scales;
    for (const auto& size : tensor.value("shape", json::array())) {
      shape += (shape.empty() ? "" : " x ") + (size.is_string() ? size.get<std::string>() : size.dump());
    }
    for (const auto& scale : tensor.value("scales", json::array())) {
      scales += "<br><code>" + escaped(scale.get<std::string>()) + "</code>";
    }
    const auto sums = [&](const char* full, const char* fast) {
      return "<code>" + (tensor.contains(full) ? field(tensor, full) : field(tensor, fast)) + "</code>";
    };
    out += "<tr><td><code>" + field(tensor, "name") + "</code>" + scales + "</td><td>" + field(tensor, "rule") +
           "</td><td>" + field(tensor, "source_dtype") +
           (tensor.contains("target_dtype") ? " to " + field(tensor, "target_dtype") : "") + "</td><td>" + shape +
           "</td><td class=n>" + count_field(tensor, "zero_codes") + "</td><td class=n>" +
           count_field(tensor, "saturated_codes") + "</td><td class=n>" + count_field(tensor, "nan_codes") +
           "</td><td>" + sums("source_sha256", "source_checksum") + "<br>" + sums("target_sha256", "target_checksum") +
           "</td></tr>\n";
  }
  return out + "</table>\n";
}

}  // namespace

std::string html_report(const json& report) {
  return "<!doctype html>\n<html lang=en><head><meta charset=utf-8><title>Conversion of " + field(report, "source") +
         "</title><style>" + kStyle + "</style></head><body>\n<h1>Conversion of " + field(report, "source") +
         "</h1>\n" + summary(report) + warnings(report) + rules(report) + histograms(report) + tensors(report) +
         "</body></html>\n";
}

}  // namespace cli
