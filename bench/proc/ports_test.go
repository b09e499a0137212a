// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"net"
	"strconv"
	"testing"
)

// A port that one run holds is no other's, but its server can listen there, and again after its end.
func TestPortsAreHeld(t *testing.T) {
	one := new(Ports)
	port, err := one.Free()
	must(t, err)
	for _, p := range []int{port - 2, port, port + 1} {
		if held, err := holdPorts(p); err == nil {
			t.Errorf("port %d is held twice", p)
			must(t, releasePorts(held))
		}
		for range 2 {
			l, err := net.Listen("tcp", hostPort(p))
			if err != nil {
				t.Errorf("the server of the port: %v", err)
				continue
			}
			if held, err := holdPorts(p); err == nil {
				t.Errorf("port %d is held while somebody listens", p)
				must(t, releasePorts(held))
			}
			must(t, l.Close())
		}
		// A server of Java listens for slaves on all addresses.
		l, err := net.Listen("tcp4", net.JoinHostPort("0.0.0.0", strconv.Itoa(p)))
		if err != nil {
			t.Errorf("the server of the port, on all addresses: %v", err)
			continue
		}
		must(t, l.Close())
	}
	must(t, one.Release())
}
