// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"context"
	"log/slog"

	"loopmq/reactor/remoting"
)

// RemotingClient keeps one connection per address and multiplexes requests on it. Any goroutine but an event loop may
// call its blocking methods.
type RemotingClient struct{}

// RemotingClientConfig holds limits; zero fields take defaults (dial 3 s, requests under way 10,000).
type RemotingClientConfig struct {
	Logger *slog.Logger
	// Processors answer requests that the peer sends on our connection, by code (may be nil).
	Processors map[int32]Processor
	// OnClose runs when the connection to addr is lost.
	OnClose func(addr string)
}

func NewRemotingClient(cfg RemotingClientConfig) (*RemotingClient, error) { return nil, nil }

// Invoke sends req to addr (host:port), connecting if need be, and waits for the answer until ctx ends. The answer is owned by the caller.
func (c *RemotingClient) Invoke(ctx context.Context, addr string, req *remoting.Command) (*remoting.Command, error) {
	return nil, nil
}

// InvokeOneway sends req with the one-way flag.
func (c *RemotingClient) InvokeOneway(ctx context.Context, addr string, req *remoting.Command) error {
	return nil
}

// CloseConn drops the connection to addr, if there is one.
func (c *RemotingClient) CloseConn(addr string) {}

// Stop closes all; requests under way fail.
func (c *RemotingClient) Stop() {}
