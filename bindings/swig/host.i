/* What the wrapper needs of the host, and the few C functions of the raw layer that are longer than a line. */
%{
/* A word that names an object of the host; 0: none. */
typedef uintptr_t invar_host;
/* Bytes that are 32-bit integers in the machine's order. */
typedef invar_bytes invar_ids;
/* An address that the host's code only carries. */
typedef uintptr_t invar_address;

/* Each language's typemaps define these seven. user is an invar_host; the functions may be called from any thread. */
static void invar_swig_drop(void* user);
static int32_t invar_swig_progress(void* user, const invar_progress* event);
static int32_t invar_swig_token(void* user, const invar_token* token);
static void invar_swig_log(void* user, int32_t level, const char* message, size_t message_size);
static int32_t invar_swig_file_size(void* user, const char* path, int64_t* size);
static int32_t invar_swig_file_read_at(void* user, const char* path, int64_t offset, void* buffer, size_t size);
static int32_t invar_swig_file_list(void* user, const char* directory, void (*add)(void* list, const char* name),
                                    void* list);

/* NULL for no callback. */
static const invar_progress_callback* progress_of(invar_host progress, invar_progress_callback* callback) {
  const invar_progress_callback empty = INVAR_PROGRESS_CALLBACK_INIT;
  if (progress == 0) return NULL;
  *callback = empty;
  callback->call = invar_swig_progress;
  callback->user = (void*)progress;
  callback->drop = invar_swig_drop;
  return callback;
}

static const invar_token_callback* token_of(invar_host token, invar_token_callback* callback) {
  const invar_token_callback empty = INVAR_TOKEN_CALLBACK_INIT;
  if (token == 0) return NULL;
  *callback = empty;
  callback->call = invar_swig_token;
  callback->user = (void*)token;
  callback->drop = invar_swig_drop;
  return callback;
}

static invar_status* create_runtime(int32_t threads, invar_host log, int32_t log_level, invar_host files,
                                    const char* file_prefix, invar_runtime** runtime) {
  invar_runtime_options options = INVAR_RUNTIME_OPTIONS_INIT;
  options.threads = threads;
  if (log != 0) {
    options.log = invar_swig_log;
    options.log_user = (void*)log;
    options.log_drop = invar_swig_drop;
    options.log_level = log_level;
  }
  if (files != 0) {
    options.file_prefix = file_prefix;
    options.file_size = invar_swig_file_size;
    options.file_read_at = invar_swig_file_read_at;
    options.file_list = invar_swig_file_list;
    options.file_user = (void*)files;
    options.file_drop = invar_swig_drop;
  }
  return invar_runtime_create(&options, runtime);
}

/* The counts are the host's promise about its memory; the language layer has compared them with the shape. */
static invar_status* forward_backward(invar_session* session, int64_t sequences, int64_t sequence_length,
                                      const int32_t* ids, size_t ids_count, const int32_t* targets,
                                      size_t targets_count, const uint8_t* mask, size_t mask_count, invar_loss* loss) {
  invar_batch batch = INVAR_BATCH_INIT;
  batch.sequences = sequences;
  batch.sequence_length = sequence_length;
  batch.ids = ids_count == 0 ? NULL : ids;
  batch.targets = targets_count == 0 ? NULL : targets;
  batch.mask = mask_count == 0 ? NULL : mask;
  return invar_session_forward_backward(session, &batch, loss);
}
%}
