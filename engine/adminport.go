// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// AdminPort serves operators over HTTP: pprof, /livez, /readyz and /metrics. It is no part of the protocol and has no
// access control, so it listens on loopback unless told otherwise. It starts before the broker, whose recovery may take
// a while, and ends after it.
type AdminPort struct {
	logger   *slog.Logger
	listener net.Listener
	server   http.Server
	served   chan struct{}

	mu     sync.RWMutex // held by whoever looks at the broker: Detach waits for them
	broker *BrokerController
}

const (
	adminHeaderTimeout = 5 * time.Second
	adminStopTimeout   = time.Second
)

// ListenAdmin serves broker's health and metrics at addr.
func ListenAdmin(addr string, broker *BrokerController, logger *slog.Logger) (*AdminPort, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("adminAddr: %w", err)
	}
	p := &AdminPort{logger: logger, listener: listener, broker: broker, served: make(chan struct{})}
	p.server = http.Server{Handler: p.routes(), ReadHeaderTimeout: adminHeaderTimeout, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug)}
	go p.serve()
	return p, nil
}

func (p *AdminPort) routes() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(p, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", p.livez)
	mux.HandleFunc("GET /readyz", p.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/debug/pprof/", pprof.Index) // with goroutine, heap, allocs, threadcreate
	mux.Handle("/debug/pprof/mutex", mutexProfile())
	mux.Handle("/debug/pprof/block", blockProfile())
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

func (p *AdminPort) serve() {
	defer close(p.served)
	if err := p.server.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
		p.logger.Error("the admin port ended", "err", err)
	}
}

// Addr is the bound address.
func (p *AdminPort) Addr() string { return p.listener.Addr().String() }

// Detach is called before the broker stops: from now on nobody looks at it, and /readyz says that it is stopping.
func (p *AdminPort) Detach() {
	p.mu.Lock()
	p.broker = nil
	p.mu.Unlock()
}

// Close ends the port; what is being answered gets a moment.
func (p *AdminPort) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), adminStopTimeout)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		_ = p.server.Close()
	}
	<-p.served
}

// livez is about the process alone: a broker that recovers, or stops, is alive.
func (p *AdminPort) livez(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, "ok")
}

// readyz says whether clients are served and sends are taken, and if not, why.
func (p *AdminPort) readyz(w http.ResponseWriter, _ *http.Request) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.broker == nil {
		writeText(w, http.StatusServiceUnavailable, "stopping")
		return
	}
	if err := p.broker.Ready(); err != nil {
		writeText(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	writeText(w, http.StatusOK, "ok")
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}

// Describe implements prometheus.Collector.
func (p *AdminPort) Describe(ch chan<- *prometheus.Desc) { describeMetrics(ch) }

// Collect implements prometheus.Collector.
func (p *AdminPort) Collect(ch chan<- prometheus.Metric) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.broker != nil {
		p.broker.collectMetrics(ch)
	}
}
