/* Trains a tiny model on a text file, prints the falling loss and a continuation. */
#include <stdio.h>
#include <string.h>

#include "invar/invar.h"

static int failed(invar_status* status) {
  if (status == NULL) return 0;
  fprintf(stderr, "%s\n", invar_status_message(status, NULL));
  invar_status_release(status);
  return 1;
}

static int32_t on_progress(void* user, const invar_progress* event) {
  (void)user;
  if (event->kind == INVAR_PROGRESS_STEP && event->step->step % 10 == 0) {
    printf("step %3d  loss %.3f\n", (int)event->step->step, event->step->loss);
  }
  return 0;
}

int main(int argc, char** argv) {
  char json[1024];
  snprintf(json, sizeof json,
           "{\"data\": {\"paths\": [\"%s\"], \"sequence_length\": 64}, \"steps\": 50,"
           " \"model\": {\"hidden_size\": 64, \"num_hidden_layers\": 2, \"intermediate_size\": 176}}",
           argc > 1 ? argv[1] : "README.md");
  const char* ask = "{\"prompt\": \"the \", \"max_tokens\": 40}";
  invar_progress_callback progress = INVAR_PROGRESS_CALLBACK_INIT;
  progress.call = on_progress;
  invar_runtime* runtime = NULL;
  invar_session* session = NULL;
  invar_bytes *config = NULL, *request = NULL, *report = NULL, *reply = NULL, *text = NULL;
  int bad =
      failed(invar_runtime_create(NULL, &runtime)) ||
      failed(invar_message_from_json(runtime, "train", 5, json, strlen(json), &config)) ||
      failed(invar_session_create(runtime, invar_bytes_data(config), invar_bytes_size(config), NULL, NULL, &session)) ||
      failed(invar_session_run(session, NULL, &progress, &report)) ||
      failed(invar_message_from_json(runtime, "generate", 8, ask, strlen(ask), &request)) ||
      failed(
          invar_session_generate(session, invar_bytes_data(request), invar_bytes_size(request), NULL, NULL, &reply)) ||
      failed(invar_message_to_json(runtime, "GenerateReport", 14, invar_bytes_data(reply), invar_bytes_size(reply),
                                   true, &text));
  if (!bad) printf("%s\n", (const char*)invar_bytes_data(text));
  invar_bytes_release(text);
  invar_bytes_release(reply);
  invar_bytes_release(request);
  invar_bytes_release(report);
  invar_bytes_release(config);
  invar_session_release(session);
  invar_runtime_release(runtime);
  return bad;
}
