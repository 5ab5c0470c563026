// The page of a report: what stands in it, and what cannot. tests/page opens it in a browser.
#include "reports/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "reports/page_template.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

// What stands between two marks of a text.
std::string between(std::string_view text, std::string_view start, std::string_view end) {
  const std::size_t from = text.find(start) + start.size();
  return std::string(text.substr(from, text.find(end, from) - from));
}

std::string data_of(const std::string& page) {
  return between(page, "type=\"application/json\">", "</script>");
}

json tensor(std::string name, std::uint64_t nbytes) {
  return {
      {"name", std::move(name)}, {"dtype", "float32"}, {"shape", {nbytes / 4}}, {"nbytes", nbytes}};
}

std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Page, IsTheTemplateAroundTheReport) {
  const std::string page = html_page("checkpoint.pt", R"({"format": "pickle", "tensors": []})");
  const json data = json::parse(data_of(page));
  EXPECT_EQ(data.at("title"), "checkpoint.pt");
  EXPECT_EQ(data.at("report"), json::parse(R"({"format": "pickle", "tensors": []})"));
  EXPECT_TRUE(data.at("left_out").empty());
  const std::string place = "REPORT</script>";
  const std::size_t at = kPageTemplate.find(place);
  EXPECT_EQ(page.substr(0, at), kPageTemplate.substr(0, at));
  EXPECT_TRUE(page.ends_with(kPageTemplate.substr(at + place.find('<'))));
}

TEST(Page, NoNameCanEndTheDataOrBeginMarkup) {
  const std::vector<std::string> names{"</script><script>alert(1)</script>",
                                       "<!--<script>",
                                       "]]>-->",
                                       "&lt;b&gt;",
                                       "REPORT</script>",
                                       "a\"'`${1}\\",
                                       "\x01\x7f\n",
                                       "\xff\xfe",
                                       "\xe2\x80\xa8\xe2\x80\xa9"};
  json report{{"tensors", json::array()}};
  for (const std::string& name : names) {
    report["tensors"].push_back(tensor(name, 4));
  }
  const std::string text = report.dump(-1, ' ', true, json::error_handler_t::replace);
  for (const std::string& title : names) {
    const std::string data = data_of(html_page(title, text));
    EXPECT_EQ(data.find_first_of("<>&"), std::string::npos);
    EXPECT_EQ(json::parse(data).at("report"), json::parse(text));
  }
}

constexpr std::size_t kMost = 100'000;

TEST(Page, OfManyTensorsKeepsWhatIsWrongAndTheLargest) {
  json report{{"format", "onnx"}, {"tensors", json::array()}, {"notes", {"a note"}}};
  constexpr std::uint64_t kCount = 2'000;
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    report["tensors"].push_back(
        tensor("model.layers.weight_of_a_layer." + std::to_string(i), 4 * i));
    report["tensors"].back()["file"] = "model-00001-of-00002.safetensors";
    bytes += 4 * i;
  }
  report["tensors"][7]["problem"] = "its entry has no location";
  const std::string page = html_page("large", report.dump(), kMost);
  EXPECT_LT(page.size(), kMost + kPageTemplate.size() + 1000);
  EXPECT_GT(page.size(), kMost * 9 / 10 + kPageTemplate.size());
  const json data = json::parse(data_of(page));
  const json& kept = data.at("report").at("tensors");
  EXPECT_EQ(kept.front().at("problem"), "its entry has no location");
  EXPECT_EQ(kept.back().at("nbytes"), 4 * (kCount - 1));
  EXPECT_EQ(data.at("report").at("notes"), report["notes"]);
  std::uint64_t kept_bytes = 0;
  for (const json& each : kept) {
    kept_bytes += each.at("nbytes").get<std::uint64_t>();
  }
  ASSERT_EQ(data.at("left_out").size(), 1U);
  EXPECT_EQ(data.at("left_out")[0].at("list"), "tensors");
  EXPECT_EQ(data.at("left_out")[0].at("count"), kCount - kept.size());
  EXPECT_EQ(data.at("left_out")[0].at("bytes"), bytes - kept_bytes);
}

TEST(Page, HasABoundedSizeForLongInputs) {
  const std::string long_name(1'000, '<');  // six times as long in the page
  json tensors = json::array();
  json models = json::array();
  for (int i = 0; i < 100; ++i) {
    tensors.push_back(tensor(long_name + std::to_string(i), 4));
  }
  for (int i = 0; i < 10; ++i) {
    models.push_back({{"model", long_name}, {"tensors", tensors}});
  }
  const json derived{{"tensors", {{"a", long_name}, {"b", tensors}}}};
  for (const json& report :
       {json{{"tensors", tensors}}, json{{"models", models}},
        json{{"sentence", long_name + long_name + long_name}}, json{{"derived", derived}}}) {
    const std::string page = html_page("long", report.dump(), kMost / 10);
    EXPECT_LT(page.size(), kMost / 5 + kPageTemplate.size());
    EXPECT_FALSE(json::parse(data_of(page)).is_discarded());
  }
}

// The digest of a text as the header of a page states it.
std::string digest_of(const std::string& text) {
  std::string hash(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(hash.data()));
  std::string out(4 * ((hash.size() + 2) / 3), '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                  reinterpret_cast<const unsigned char*>(hash.data()),
                  static_cast<int>(hash.size()));
  return out;
}

// A browser runs no other script and takes no other style, whatever a name brings in.
TEST(PageTemplate, AllowsItsOwnScriptAndStyleAlone) {
  const std::string script = digest_of(between(kPageTemplate, "<script>", "</script>"));
  const std::string style = digest_of(between(kPageTemplate, "<style>", "</style>"));
  EXPECT_THAT(
      std::string(kPageTemplate),
      HasSubstr("content=\"default-src 'none'; script-src 'sha256-" + script +
                "'; style-src 'sha256-" + style + "'; base-uri 'none'; form-action 'none'\""))
      << "src/reports/page.html was changed: its header states the digests of script and style";
}

TEST(PageTemplate, MakesNoMarkupOfTextAndNamesNoAddress) {
  for (const char* word :
       {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(",
        "srcdoc", "setAttribute", "http:", "https:", "url(", "import(", "fetch", "XMLHttpRequest",
        "<iframe", "<img", "<link"}) {
    EXPECT_THAT(std::string(kPageTemplate), Not(HasSubstr(word)));
  }
}

TEST(PageTemplate, HasAtMost300LinesOfScript) {
  const std::string script = between(kPageTemplate, "<script>\n", "</script>");
  EXPECT_LE(std::count(script.begin(), script.end(), '\n'), 300);
}

TEST(PageFile, ReplacesAnOlderPageAndNothingElse) {
  const TempDir dir;
  const auto path = dir.path() / "page.html";
  ASSERT_THAT(check_page(path, Overwrite::kRefuse), IsOk());
  ASSERT_THAT(write_page(path, html_page("old", "{}"), Overwrite::kRefuse), IsOk());
  EXPECT_THAT(check_page(path, Overwrite::kRefuse), FailsWith(ErrorCode::kAlreadyExists, "exists"));
  EXPECT_THAT(write_page(path, "new", Overwrite::kRefuse),
              FailsWith(ErrorCode::kAlreadyExists, ""));
  ASSERT_THAT(check_page(path, Overwrite::kAllow), IsOk());
  ASSERT_THAT(write_page(path, html_page("new", "{}"), Overwrite::kAllow), IsOk());
  EXPECT_THAT(read(path), HasSubstr("\"title\": \"new\""));
  const auto other = dir.write("index.html", "<!DOCTYPE html>\n<html>mine</html>");
  EXPECT_THAT(check_page(other, Overwrite::kAllow),
              FailsWith(ErrorCode::kAlreadyExists, "was not written by onnx-external"));
  EXPECT_THAT(check_page(dir.path(), Overwrite::kAllow), FailsWith(ErrorCode::kAlreadyExists, ""));
  EXPECT_THAT(check_page(dir.path() / "nowhere" / "page.html", Overwrite::kAllow),
              FailsWith(ErrorCode::kNotFound, "nowhere"));
}

}  // namespace
}  // namespace onnx_external
