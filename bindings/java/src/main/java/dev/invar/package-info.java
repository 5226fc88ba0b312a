/**
 * Convert FP8 checkpoints and train language models in this process, over invar's C library. Begin with
 * {@link dev.invar.InvarRuntime}.
 *
 * <p>Configs and reports are protobuf messages of {@code dev.invar.v1}. Native objects are {@link java.lang.AutoCloseable}:
 * close them; a cleaner does it for those that were forgotten. After close every call throws
 * {@link java.lang.IllegalStateException}; closing during a call of another thread is safe. Failures of the library are
 * {@link dev.invar.InvarException}s with a code and a reason.
 */
package dev.invar;
