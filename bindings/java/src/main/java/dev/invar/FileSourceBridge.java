package dev.invar;

import dev.invar.raw.FileCallback;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.NoSuchFileException;

/** A {@link FileSource} as the native layer calls it: exceptions become status codes. */
final class FileSourceBridge extends FileCallback {
  private final FileSource source;

  FileSourceBridge(FileSource source) {
    this.source = source;
  }

  @Override
  protected long size(String path) {
    try {
      long size = source.size(path);
      return size >= 0 ? size : -Code.INTERNAL.number();
    } catch (IOException problem) {
      return -codeOf(problem);
    }
  }

  @Override
  protected int readAt(String path, long offset, ByteBuffer buffer) {
    try {
      source.readAt(path, offset, buffer);
      return buffer.hasRemaining() ? Code.DATA_LOSS.number() : Code.OK.number();
    } catch (IOException problem) {
      return codeOf(problem);
    }
  }

  @Override
  protected int list(String directory, Names names) {
    try {
      source.list(directory).forEach(names::add);
      return Code.OK.number();
    } catch (IOException problem) {
      return codeOf(problem);
    }
  }

  private static int codeOf(IOException problem) {
    boolean absent = problem instanceof FileNotFoundException || problem instanceof NoSuchFileException;
    return (absent ? Code.NOT_FOUND : Code.UNAVAILABLE).number();
  }
}
