package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"invar.dev/invar"
)

func main() {
	address := flag.String("listen", "127.0.0.1:8080", "address to listen on")
	root := flag.String("root", "service-data", "folder for uploads and runs")
	limit := flag.Int64("max-upload", 1<<30, "bytes of an upload at most")
	threads := flag.Int("threads", 0, "thread budget; 0: all processors")
	flag.Parse()
	if err := serve(*address, *root, *limit, *threads); err != nil {
		slog.Error(err.Error())
		os.Exit(1)
	}
}

// serve runs until SIGINT or SIGTERM; jobs then write a checkpoint and end.
func serve(address, root string, limit int64, threads int) error {
	runtime, err := invar.NewRuntime(invar.Options{Threads: threads, Logger: slog.Default()})
	if err != nil {
		return err
	}
	defer runtime.Close()
	handler := newService(runtime, root, limit)
	server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		<-ctx.Done()
		handler.shutdown()
		_ = server.Shutdown(context.Background())
	}()
	slog.Info("listening", "address", address, "root", root)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	handler.shutdown()
	return nil
}
