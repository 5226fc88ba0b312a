package dev.invar;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;

/**
 * Read-only files that the host fetches itself: an object store, an archive. Called from any of the runtime's threads,
 * several at once; it must not call the library. A {@link java.io.FileNotFoundException} or
 * {@link java.nio.file.NoSuchFileException} becomes {@link Code#NOT_FOUND}, another IOException
 * {@link Code#UNAVAILABLE}, anything else {@link Code#INTERNAL}.
 */
public interface FileSource {
  /**
   * The size of a file.
   *
   * @param path with the prefix under which this source was registered
   * @return bytes
   * @throws IOException when the file cannot be had
   */
  long size(String path) throws IOException;

  /**
   * Reads part of a file.
   *
   * @param path with the prefix
   * @param offset the first byte
   * @param into to be filled to its limit; must not be kept after the call
   * @throws IOException when the bytes cannot be had
   */
  void readAt(String path, long offset, ByteBuffer into) throws IOException;

  /**
   * The files of a directory.
   *
   * @param directory with the prefix
   * @return file names without directory
   * @throws IOException when the listing cannot be had
   */
  List<String> list(String directory) throws IOException;
}
