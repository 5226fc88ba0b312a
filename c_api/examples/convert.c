/* Converts an FP8 checkpoint to BF16 and prints the report: convert SOURCE DESTINATION. */
#include <stdio.h>
#include <string.h>

#include "invar/invar.h"

static int failed(invar_status* status) {
  if (status == NULL) return 0;
  fprintf(stderr, "%s\n", invar_status_message(status, NULL));
  invar_status_release(status);
  return 1;
}

int main(int argc, char** argv) {
  char source[4096], destination[4096];
  if (argc != 3) return fprintf(stderr, "usage: convert SOURCE DESTINATION\n"), 2;
  snprintf(source, sizeof source, "source=%s", argv[1]);
  snprintf(destination, sizeof destination, "destination=%s", argv[2]);
  invar_runtime* runtime = NULL;
  invar_bytes *half = NULL, *config = NULL, *report = NULL, *text = NULL;
  int bad = failed(invar_runtime_create(NULL, &runtime)) ||
            failed(invar_message_set(runtime, "convert", 7, NULL, 0, source, strlen(source), &half)) ||
            failed(invar_message_set(runtime, "convert", 7, invar_bytes_data(half), invar_bytes_size(half), destination,
                                     strlen(destination), &config)) ||
            failed(invar_checkpoint_convert(runtime, invar_bytes_data(config), invar_bytes_size(config), NULL, NULL,
                                            &report)) ||
            failed(invar_message_to_json(runtime, "ConvertReport", 13, invar_bytes_data(report),
                                         invar_bytes_size(report), true, &text));
  if (!bad) printf("%s\n", (const char*)invar_bytes_data(text));
  invar_bytes_release(text);
  invar_bytes_release(report);
  invar_bytes_release(config);
  invar_bytes_release(half);
  invar_runtime_release(runtime);
  return bad;
}
