/* Converts an FP8 checkpoint to BF16 and prints how many tensors were written: convert SOURCE DESTINATION. */
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
  char json[4096];
  if (argc != 3) return 2;
  snprintf(json, sizeof json, "{\"source\": \"%s\", \"destination\": \"%s\"}", argv[1], argv[2]);
  invar_runtime* runtime = NULL;
  invar_bytes *config = NULL, *report = NULL, *text = NULL;
  int bad = failed(invar_runtime_create(NULL, &runtime)) ||
            failed(invar_message_from_json(runtime, "convert", 7, json, strlen(json), &config)) ||
            failed(invar_checkpoint_convert(runtime, invar_bytes_data(config), invar_bytes_size(config), NULL, NULL,
                                            &report)) ||
            failed(invar_message_to_text(runtime, "ConvertReport", 13, invar_bytes_data(report),
                                         invar_bytes_size(report), &text));
  if (!bad) puts(strstr((const char*)invar_bytes_data(text), "tensors_written"));
  invar_bytes_release(text);
  invar_bytes_release(report);
  invar_bytes_release(config);
  invar_runtime_release(runtime);
  return bad;
}
