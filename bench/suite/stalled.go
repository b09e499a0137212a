// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"loopmq/bench/result"
)

const (
	// deafReport is how often the slave that does not read says that it has nothing: often enough to be kept.
	deafReport = 500 * time.Millisecond
	// deafBuffer is its receive buffer: the kernel is not to hold much for it.
	deafBuffer = 4 << 10
	deafRetry  = 100 * time.Millisecond
)

// deafSlave is a slave that asks for the log and does not read it, until ctx ends. When the master ends the connection it
// comes back. It returns how often it was connected.
func deafSlave(ctx context.Context, addr string) (connected int, err error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	for ctx.Err() == nil {
		var conn net.Conn
		if conn, err = dialer.DialContext(ctx, "tcp", addr); err == nil {
			connected++
			report(ctx, conn)
			continue
		}
		_ = sleep(ctx, deafRetry)
	}
	if connected > 0 {
		err = nil
	}
	return connected, err
}

// report says, until the connection or ctx ends, that the slave's log ends at 0. Source: HAClient#reportSlaveMaxOffset.
func report(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(deafBuffer)
	}
	for {
		_ = conn.SetWriteDeadline(time.Now().Add(deafReport))
		if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, 0)); err != nil || sleep(ctx, deafReport) != nil {
			return
		}
	}
}

// measureStalled loads a master one of whose slaves asks for everything and reads nothing: what its memory does is the
// figure.
func (h *host) measureStalled(ctx context.Context, s result.Settings) (*result.Result, error) {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	type outcome struct {
		connected int
		err       error
	}
	ended := make(chan outcome, 1)
	began := make(chan struct{})
	go func() {
		<-began
		connected, err := deafSlave(asking, h.master.HAAddr)
		ended <- outcome{connected, err}
	}()
	r, err := h.leanHooked(ctx, withTimes(s, h.plan), beginning(began))
	stop()
	select {
	case <-began:
	default:
		close(began) // the load failed before
	}
	slave := <-ended
	if err = errors.Join(err, slave.err); err != nil {
		return nil, err
	}
	if slave.connected == 0 {
		return nil, fmt.Errorf("no slave was taken at %s", h.master.HAAddr)
	}
	return r, nil
}
