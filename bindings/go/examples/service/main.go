package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"invar.dev/invar"
)

func main() {
	var o options
	address := flag.String("listen", "127.0.0.1:8080", "address to listen on; port 0 takes a free one")
	threads := flag.Int("threads", 0, "thread budget; 0: all processors")
	flag.StringVar(&o.root, "root", "service-data", "folder for uploads and jobs")
	flag.StringVar(&o.model, "model", "", "model folder that jobs start from; none: a random start")
	flag.Int64Var(&o.maxUpload, "max-upload", 1<<30, "bytes of an upload at most")
	flag.Parse()
	if err := serve(*address, *threads, o); err != nil {
		slog.Error(err.Error())
		os.Exit(1)
	}
}

// serve runs until SIGINT or SIGTERM. The running job then writes a checkpoint, and requests at work are answered.
func serve(address string, threads int, o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	runtime, err := invar.NewRuntime(invar.Options{Threads: threads, Logger: slog.Default()})
	if err != nil {
		return err
	}
	defer runtime.Close()
	handler, err := newService(runtime, o)
	if err != nil {
		return err
	}
	defer handler.shutdown()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	slog.Info("listening", "address", listener.Addr().String())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal ends the process at once
	handler.shutdown()
	patience, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(patience); err != nil {
		_ = server.Close()
	}
	slog.Info("stopped")
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
