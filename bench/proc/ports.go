// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

const loopback = "127.0.0.1"

// The ports of servers lie below those that the kernel gives to outgoing connections.
const (
	portsFrom, portsTo = 13000, 32000
	portTries          = 200
)

// freePort is a port that is free with the neighbours a broker takes: two below is Java's fast listener, one above is for
// slaves.
func freePort() (int, error) {
	for range portTries {
		port := portsFrom + rand.IntN(portsTo-portsFrom)
		if isFree(port-2) && isFree(port) && isFree(port+1) {
			return port, nil
		}
	}
	return 0, errors.New("no free ports")
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", hostPort(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func hostPort(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
