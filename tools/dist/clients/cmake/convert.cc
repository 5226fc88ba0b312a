// Converts an FP8 checkpoint to BF16 and prints the report: convert SOURCE DESTINATION.
#include <iostream>

#include "invar/invar.hpp"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const invar::Runtime runtime;
    std::string config = runtime.set("convert", {}, std::string("source=") + argv[1]);
    config = runtime.set("convert", config, std::string("destination=") + argv[2]);
    std::cout << runtime.to_text("ConvertReport", runtime.convert(config)) << "\n";
  } catch (const invar::Error& error) {
    std::cerr << error.reason() << ": " << error.what() << "\n";
    return 1;
  }
}
