package invar

import (
	"context"
	"log/slog"

	"invar.dev/invar/internal/raw"
)

// The library's levels.
const (
	logDebug = 1 + iota
	logInfo
	logWarning
	logError
)

func slogLevel(level int32) slog.Level {
	switch level {
	case logDebug:
		return slog.LevelDebug
	case logInfo:
		return slog.LevelInfo
	case logWarning:
		return slog.LevelWarn
	}
	return slog.LevelError
}

// lowestLevel is the first of the library's levels that logger takes, so that the rest is not even formatted.
func lowestLevel(logger *slog.Logger) int32 {
	for level := int32(logDebug); level < logError; level++ {
		if logger.Enabled(context.Background(), slogLevel(level)) {
			return level
		}
	}
	return logError
}

// logTo is the sink of a runtime. A handler that panics loses its line, no more.
func logTo(logger *slog.Logger) raw.LogFunc {
	return func(level int32, message string) {
		defer func() { _ = recover() }()
		logger.LogAttrs(context.Background(), slogLevel(level), message, slog.String("source", "libinvar"))
	}
}
