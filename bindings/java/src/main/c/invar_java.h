/* What the Java wrapper needs beyond SWIG's own code: exceptions from statuses, and the library's callbacks as calls of
 * dev.invar.raw.{Progress,Token,Log,File}Callback. Included by the wrapper alone, after its declarations of
 * invar_swig_*; an invar_host is a global reference.
 *
 * No Java exception passes through the library: the Java classes keep what a listener threw and return a number. Local
 * references live in a frame of their own, since a callback may come a million times within one native call. */

#include <jni.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "invar/invar.h"

_Static_assert(sizeof(jlong) == sizeof(void*), "addresses travel as jlong");

/* Set once in JNI_OnLoad, before any other function runs. */
static JavaVM* invar_java_vm;
static pthread_key_t invar_java_attached;
static struct {
  jclass exception;
  jmethodID exception_make, progress, token, log, file_size, file_read_at, file_list;
} invar_java;

static void invar_java_detach(void* env) {
  (void)env;
  (*invar_java_vm)->DetachCurrentThread(invar_java_vm);
}

static jmethodID invar_java_method(JNIEnv* env, const char* type, const char* name, const char* signature) {
  const jclass found = (*env)->FindClass(env, type);
  return found == NULL ? NULL : (*env)->GetMethodID(env, found, name, signature);
}

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM* vm, void* reserved) {
  JNIEnv* env = NULL;
  jclass found;
  (void)reserved;
  if ((*vm)->GetEnv(vm, (void**)&env, JNI_VERSION_1_8) != JNI_OK) return JNI_ERR;
  if (pthread_key_create(&invar_java_attached, invar_java_detach) != 0) return JNI_ERR;
  invar_java_vm = vm;
  found = (*env)->FindClass(env, "dev/invar/InvarException");
  if (found == NULL) return JNI_ERR;
  invar_java.exception = (*env)->NewGlobalRef(env, found);
  invar_java.exception_make = (*env)->GetMethodID(env, found, "<init>", "(I[B[BI)V");
  if (invar_java.exception == NULL || invar_java.exception_make == NULL) return JNI_ERR;
  invar_java.progress = invar_java_method(env, "dev/invar/raw/ProgressCallback", "invoke", "(I[B[B[BJJDJZJDDJD)I");
  if (invar_java.progress == NULL) return JNI_ERR;
  invar_java.token = invar_java_method(env, "dev/invar/raw/TokenCallback", "invoke", "(IJ[B)I");
  if (invar_java.token == NULL) return JNI_ERR;
  invar_java.log = invar_java_method(env, "dev/invar/raw/LogCallback", "invoke", "(I[B)V");
  if (invar_java.log == NULL) return JNI_ERR;
  invar_java.file_size = invar_java_method(env, "dev/invar/raw/FileCallback", "invokeSize", "([B)J");
  if (invar_java.file_size == NULL) return JNI_ERR;
  invar_java.file_read_at =
      invar_java_method(env, "dev/invar/raw/FileCallback", "invokeReadAt", "([BJLjava/nio/ByteBuffer;)I");
  if (invar_java.file_read_at == NULL) return JNI_ERR;
  invar_java.file_list = invar_java_method(env, "dev/invar/raw/FileCallback", "invokeList", "([BJJ)I");
  return invar_java.file_list == NULL ? JNI_ERR : JNI_VERSION_1_8;
}

/* The environment of this thread; NULL when it cannot be attached. */
static JNIEnv* invar_java_env(void) {
  JNIEnv* env = NULL;
  JavaVMAttachArgs arguments = {JNI_VERSION_1_8, (char*)"invar", NULL};
  if ((*invar_java_vm)->GetEnv(invar_java_vm, (void**)&env, JNI_VERSION_1_8) == JNI_OK) return env;
  if ((*invar_java_vm)->AttachCurrentThreadAsDaemon(invar_java_vm, (void**)&env, &arguments) != JNI_OK) return NULL;
  /* The key's destructor detaches the thread when it ends. */
  pthread_setspecific(invar_java_attached, env);
  return env;
}

/* Whether an array may have so many elements; if not, an exception is pending. */
static int invar_java_fits(JNIEnv* env, size_t count) {
  jclass type;
  if (count <= INT32_MAX) return 1;
  type = (*env)->FindClass(env, "java/lang/OutOfMemoryError");
  if (type != NULL) (*env)->ThrowNew(env, type, "result is larger than an array");
  return 0;
}

/* NULL with an exception pending when there is no memory or too many bytes for an array. */
static jbyteArray invar_java_bytes(JNIEnv* env, const void* data, size_t size) {
  jbyteArray array;
  if (!invar_java_fits(env, size)) return NULL;
  array = (*env)->NewByteArray(env, (jsize)size);
  if (array != NULL && size > 0) (*env)->SetByteArrayRegion(env, array, 0, (jsize)size, (const jbyte*)data);
  return array;
}

/* The same of size bytes that are 32-bit integers. */
static jintArray invar_java_ints(JNIEnv* env, const void* data, size_t size) {
  const size_t count = size / sizeof(jint);
  jintArray array;
  if (!invar_java_fits(env, count)) return NULL;
  array = (*env)->NewIntArray(env, (jsize)count);
  if (array != NULL && count > 0) (*env)->SetIntArrayRegion(env, array, 0, (jsize)count, (const jint*)data);
  return array;
}

/* Takes the status over. Leaves a pending exception alone. */
static void invar_java_throw(JNIEnv* env, invar_status* status) {
  if (!(*env)->ExceptionCheck(env)) {
    size_t reason_size = 0, message_size = 0;
    const char* reason = invar_status_reason(status, &reason_size);
    const char* message = invar_status_message(status, &message_size);
    const jbyteArray reason_bytes = invar_java_bytes(env, reason, reason_size);
    const jbyteArray message_bytes = reason_bytes == NULL ? NULL : invar_java_bytes(env, message, message_size);
    if (message_bytes != NULL) {
      const jobject made =
          (*env)->NewObject(env, invar_java.exception, invar_java.exception_make, (jint)invar_status_code(status),
                            reason_bytes, message_bytes, (jint)invar_status_callback_value(status));
      if (made != NULL) (*env)->Throw(env, (jthrowable)made);
    }
  }
  invar_status_release(status);
}

/* Address and element count of a direct buffer; false with an exception pending for another one. */
static int invar_java_direct(JNIEnv* env, jobject buffer, void** address, size_t* size) {
  *address = (*env)->GetDirectBufferAddress(env, buffer);
  if (*address == NULL) {
    const jclass type = (*env)->FindClass(env, "java/lang/IllegalArgumentException");
    if (type != NULL) (*env)->ThrowNew(env, type, "buffer is not direct: use ByteBuffer.allocateDirect");
    return 0;
  }
  *size = (size_t)(*env)->GetDirectBufferCapacity(env, buffer);
  return 1;
}

/* 0 for null; 0 with an exception pending when there is no memory. */
static invar_host invar_java_host(JNIEnv* env, jobject object) {
  return object == NULL ? 0 : (invar_host)(*env)->NewGlobalRef(env, object);
}

static void invar_swig_drop(void* user) {
  JNIEnv* env = invar_java_env();
  if (env != NULL) (*env)->DeleteGlobalRef(env, (jobject)user);
}

/* Opens a frame for local references; NULL when Java cannot be called. */
static JNIEnv* invar_java_enter(void) {
  JNIEnv* env = invar_java_env();
  if (env == NULL) return NULL;
  if ((*env)->PushLocalFrame(env, 16) == 0) return env;
  (*env)->ExceptionClear(env);
  return NULL;
}

/* Closes the frame; true when what Java did ended without an exception. */
static int invar_java_leave(JNIEnv* env) {
  const int good = !(*env)->ExceptionCheck(env);
  if (!good) (*env)->ExceptionClear(env);
  (*env)->PopLocalFrame(env, NULL);
  return good;
}

static jbyteArray invar_java_text(JNIEnv* env, const char* text) {
  if (text == NULL) text = "";
  return (*env)->ExceptionCheck(env) ? NULL : invar_java_bytes(env, text, strlen(text));
}

static int32_t invar_swig_progress(void* user, const invar_progress* event) {
  JNIEnv* env = invar_java_enter();
  jvalue values[14];
  jint result = -1;
  if (env == NULL) return result;
  values[0].i = event->kind;
  values[1].l = invar_java_text(env, event->stage);
  values[2].l = invar_java_text(env, event->detail);
  values[3].l = invar_java_text(env, event->unit);
  values[4].j = event->done;
  values[5].j = event->total;
  values[6].d = event->seconds;
  values[7].j = (jlong)(intptr_t)event->step;
  values[8].z = event->eval != NULL;
  values[9].j = event->eval == NULL ? 0 : event->eval->step;
  values[10].d = event->eval == NULL ? 0 : event->eval->loss;
  values[11].d = event->eval == NULL ? 0 : event->eval->perplexity;
  values[12].j = event->eval == NULL ? 0 : event->eval->tokens;
  values[13].d = event->eval == NULL ? 0 : event->eval->seconds;
  if (!(*env)->ExceptionCheck(env)) {
    result = (*env)->CallIntMethodA(env, (jobject)user, invar_java.progress, values);
  }
  return invar_java_leave(env) ? result : -1;
}

static int32_t invar_swig_token(void* user, const invar_token* token) {
  JNIEnv* env = invar_java_enter();
  jint result = -1;
  jbyteArray text;
  if (env == NULL) return result;
  text = invar_java_bytes(env, token->text, token->text_size);
  if (text != NULL) {
    result = (*env)->CallIntMethod(env, (jobject)user, invar_java.token, (jint)token->id, (jlong)token->index, text);
  }
  return invar_java_leave(env) ? result : -1;
}

static void invar_swig_log(void* user, int32_t level, const char* message, size_t size) {
  JNIEnv* env = invar_java_enter();
  jbyteArray text;
  if (env == NULL) return;
  text = invar_java_bytes(env, message, size);
  if (text != NULL) (*env)->CallVoidMethod(env, (jobject)user, invar_java.log, (jint)level, text);
  invar_java_leave(env);
}

static int32_t invar_swig_file_size(void* user, const char* path, int64_t* size) {
  JNIEnv* env = invar_java_enter();
  jlong result = -INVAR_UNAVAILABLE;
  jbyteArray text;
  if (env == NULL) return INVAR_UNAVAILABLE;
  text = invar_java_text(env, path);
  if (text != NULL) result = (*env)->CallLongMethod(env, (jobject)user, invar_java.file_size, text);
  if (!invar_java_leave(env)) return INVAR_UNAVAILABLE;
  if (result < 0) return (int32_t)-result;
  *size = result;
  return INVAR_OK;
}

static int32_t invar_swig_file_read_at(void* user, const char* path, int64_t offset, void* buffer, size_t size) {
  /* A ByteBuffer holds less than 2 GiB. */
  const size_t most = (size_t)1 << 30;
  size_t done = 0;
  while (done < size) {
    const size_t part = size - done < most ? size - done : most;
    JNIEnv* env = invar_java_enter();
    jint result = INVAR_UNAVAILABLE;
    jbyteArray text;
    jobject view;
    if (env == NULL) return INVAR_UNAVAILABLE;
    text = invar_java_text(env, path);
    view = text == NULL ? NULL : (*env)->NewDirectByteBuffer(env, (char*)buffer + done, (jlong)part);
    if (view != NULL) {
      result = (*env)->CallIntMethod(env, (jobject)user, invar_java.file_read_at, text, (jlong)(offset + done), view);
    }
    if (!invar_java_leave(env)) return INVAR_UNAVAILABLE;
    if (result != INVAR_OK) return result;
    done += part;
  }
  return INVAR_OK;
}

static int32_t invar_swig_file_list(void* user, const char* directory, void (*add)(void* list, const char* name),
                                    void* list) {
  JNIEnv* env = invar_java_enter();
  jint result = INVAR_UNAVAILABLE;
  jbyteArray text;
  if (env == NULL) return result;
  text = invar_java_text(env, directory);
  if (text != NULL) {
    result = (*env)->CallIntMethod(env, (jobject)user, invar_java.file_list, text, (jlong)(intptr_t)add,
                                   (jlong)(intptr_t)list);
  }
  return invar_java_leave(env) ? result : INVAR_UNAVAILABLE;
}

/* The bytes and a NUL, to be freed; NULL with an exception pending when there is no memory. */
static char* invar_java_c_string(JNIEnv* env, jbyteArray bytes) {
  const jsize size = (*env)->GetArrayLength(env, bytes);
  char* text = (char*)calloc(1, (size_t)size + 1);
  if (text != NULL) {
    (*env)->GetByteArrayRegion(env, bytes, 0, size, (jbyte*)text);
  } else {
    const jclass type = (*env)->FindClass(env, "java/lang/OutOfMemoryError");
    if (type != NULL) (*env)->ThrowNew(env, type, "no memory for a string");
  }
  return text;
}

/* FileCallback.add: one name of a listing. */
JNIEXPORT void JNICALL Java_dev_invar_raw_FileCallback_add(JNIEnv* env, jclass type, jlong add, jlong list,
                                                           jbyteArray name) {
  char* text = invar_java_c_string(env, name);
  (void)type;
  if (text == NULL) return;
  ((void (*)(void*, const char*))(intptr_t)add)((void*)(intptr_t)list, text);
  free(text);
}

/* Memory.buffer: a view of memory that somebody else keeps alive. */
JNIEXPORT jobject JNICALL Java_dev_invar_raw_Memory_buffer(JNIEnv* env, jclass type, jlong address, jlong size) {
  (void)type;
  return (*env)->NewDirectByteBuffer(env, (void*)(intptr_t)address, size);
}
