package invar

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"

	"invar.dev/invar/internal/raw"
)

// hostFiles lets the library read an fs.FS. Files stay open until the runtime is released, as the library reads one file
// in many pieces; a file that is no io.ReaderAt is read under a lock.
type hostFiles struct {
	system fs.FS
	prefix string
	mutex  sync.Mutex
	open   map[string]*hostFile
}

type hostFile struct {
	mutex sync.Mutex
	file  fs.File
	size  int64
}

var _ raw.Files = (*hostFiles)(nil)

func newHostFiles(system fs.FS, prefix string) *hostFiles {
	return &hostFiles{system: system, prefix: prefix, open: make(map[string]*hostFile)}
}

// name is the path below the prefix, as fs.FS spells it.
func (h *hostFiles) name(given string) string {
	name := strings.Trim(path.Clean("/"+strings.TrimPrefix(given, h.prefix)), "/")
	if name == "" {
		return "."
	}
	return name
}

func codeOf(err error) int32 {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return int32(NotFound)
	case errors.Is(err, fs.ErrPermission):
		return int32(PermissionDenied)
	case errors.Is(err, fs.ErrInvalid):
		return int32(InvalidArgument)
	}
	return int32(Unavailable)
}

// shield turns a panic of the host's files into a code.
func shield(code *int32) {
	if recover() != nil {
		*code = int32(Internal)
	}
}

func (h *hostFiles) get(given string) (*hostFile, error) {
	name := h.name(given)
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if known := h.open[name]; known != nil {
		return known, nil
	}
	file, err := h.system.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil || info.IsDir() {
		_ = file.Close()
		if err == nil {
			err = fs.ErrNotExist
		}
		return nil, err
	}
	opened := &hostFile{file: file, size: info.Size()}
	h.open[name] = opened
	return opened, nil
}

// Size is the bytes of a file.
func (h *hostFiles) Size(given string) (size int64, code int32) {
	defer shield(&code)
	file, err := h.get(given)
	if err != nil {
		return 0, codeOf(err)
	}
	return file.size, 0
}

// ReadAt fills buffer.
func (h *hostFiles) ReadAt(given string, offset int64, buffer []byte) (code int32) {
	defer shield(&code)
	file, err := h.get(given)
	if err != nil {
		return codeOf(err)
	}
	if at, ok := file.file.(io.ReaderAt); ok {
		n, err := at.ReadAt(buffer, offset)
		if n < len(buffer) {
			return shortRead(err)
		}
		return 0
	}
	seeker, ok := file.file.(io.ReadSeeker)
	if !ok {
		return int32(Unimplemented)
	}
	file.mutex.Lock()
	defer file.mutex.Unlock()
	if _, err := seeker.Seek(offset, io.SeekStart); err != nil {
		return codeOf(err)
	}
	if n, err := io.ReadFull(seeker, buffer); n < len(buffer) {
		return shortRead(err)
	}
	return 0
}

func shortRead(err error) int32 {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return int32(DataLoss)
	}
	return codeOf(err)
}

// List names the files of a directory.
func (h *hostFiles) List(given string, add func(name string)) (code int32) {
	defer shield(&code)
	entries, err := fs.ReadDir(h.system, h.name(given))
	if err != nil {
		return codeOf(err)
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			add(entry.Name())
		}
	}
	return 0
}

// Drop closes what was opened.
func (h *hostFiles) Drop() {
	defer func() { _ = recover() }()
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for _, file := range h.open {
		_ = file.file.Close()
	}
	h.open = nil
}
