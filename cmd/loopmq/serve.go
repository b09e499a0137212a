// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"loopmq/engine"
	"loopmq/engine/namesrv"
)

// stopTimeout bounds an ordered stop: answers under way, the last flush.
const stopTimeout = 20 * time.Second

// sameStop is how long after the first signal another one is the same wish: timeout(1) sends two, and a shell, make and
// service managers send one to the whole group and one to its leader.
const sameStop = 500 * time.Millisecond

// signals returns a context that the first SIGINT, SIGTERM or, unless nohup has it ignored, SIGHUP ends. A later one ends
// the process at once, for whoever cannot wait for an ordered stop: to the store that is a crash, from which it recovers.
func signals(logger *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	caught := make(chan os.Signal, 2)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(caught, syscall.SIGHUP)
	}
	signal.Ignore(syscall.SIGPIPE) // a line to a log that nobody reads any more would end the process
	go func() {
		s := <-caught
		logger.Info("stopping", "signal", s.String())
		cancel()
		for first := time.Now(); time.Since(first) < sameStop; {
			s = <-caught
		}
		logger.Warn("stopping at once", "signal", s.String())
		stderr.Flush(logFlushMax)
		os.Exit(1)
	}()
	return ctx, cancel
}

// waitingServices is how many goroutines of a broker wait in system calls beside the event loops of its clients: the loop
// of slaves, the one of the master or the name servers, flush and population of the log, flush of the queues.
const waitingServices = 5

// reserveProcessors lets the scheduler run more goroutines than there are processors, one for each that waits in a system
// call: an event loop waits in epoll_wait, and the runtime leaves it its place only while another is free. Else it takes
// the place away and looks for such loops every 20 µs; that cost a fifth of the system time of a master with a slave on
// two processors. GOMAXPROCS in the environment wins.
func reserveProcessors(serverLoops int) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + serverLoops + waitingServices)
	}
}

// serveBroker runs a broker until ctx ends or the broker does.
func serveBroker(ctx context.Context, cfg engine.Config, logger *slog.Logger) (err error) {
	reserveProcessors(cfg.ServerLoops)
	broker, err := engine.New(cfg, engine.Options{Logger: logger})
	if err != nil {
		return err
	}
	admin, err := listenAdmin(cfg.AdminAddr, broker, logger)
	if err != nil {
		return err
	}
	if admin != nil {
		defer admin.Close()
	}
	if err := broker.Start(ctx); err != nil {
		if admin != nil {
			admin.Detach()
		}
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return broker.Shutdown(stopTimeout) // asked for; Start has done it
		}
		return err
	}
	printLine(broker.BootLine())
	select {
	case <-ctx.Done():
	case <-broker.Done():
		err = broker.Err()
	}
	if admin != nil {
		admin.Detach()
	}
	return errors.Join(err, broker.Shutdown(stopTimeout))
}

// listenAdmin opens the admin port. The default address may be taken, by another broker on this host: then there is
// none. An address that was asked for must be free.
func listenAdmin(addr string, broker *engine.BrokerController, logger *slog.Logger) (*engine.AdminPort, error) {
	if addr == "" {
		return nil, nil
	}
	admin, err := engine.ListenAdmin(addr, broker, logger)
	if errors.Is(err, syscall.EADDRINUSE) && addr == engine.DefaultAdminAddr {
		logger.Warn("no admin port: its default address is taken, set adminAddr to another", "addr", addr)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	logger.Info("admin port", "addr", admin.Addr(), "serves", "/metrics /livez /readyz /debug/pprof/")
	return admin, nil
}

// startNamesrv starts a name server; the caller stops it.
func startNamesrv(cfg namesrv.Config, logger *slog.Logger) (*namesrv.Server, error) {
	server := namesrv.New(cfg, logger)
	if err := server.Start(); err != nil {
		return nil, err
	}
	printLine(fmt.Sprintf("The Name Server boot success. serializeType=JSON, address %s", server.Addr()))
	return server, nil
}

// printLine writes to standard output, behind what is logged before. It waits logFlushMax for a reader that stands still,
// which must not keep a server from its work, nor from stopping.
func printLine(line string) {
	stderr.Flush(logFlushMax)
	printed := make(chan struct{})
	go func() {
		fmt.Println(line)
		close(printed)
	}()
	select {
	case <-printed:
	case <-time.After(logFlushMax):
	}
}

// readConfigFile reads -c FILE; no file is an empty one.
func readConfigFile(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("configuration file %s does not exist", path)
	}
	return text, err
}
