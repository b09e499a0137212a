// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

const loopback = "127.0.0.1"

// The ports of servers lie below those that the kernel gives to outgoing connections.
const (
	portsFrom, portsTo = 13000, 32000
	portTries          = 200
)

// Ports are held for the servers of a run until Release: a server starts some time after its port was chosen, and again
// after it was killed, and other runs on this machine look for ports meanwhile.
type Ports struct{ held []int } // sockets

// Free is a port that is free with the neighbours a broker takes: two below is Java's fast listener, one above is for
// slaves. All three are held from now on.
func (p *Ports) Free() (int, error) {
	for range portTries {
		port := portsFrom + rand.IntN(portsTo-portsFrom)
		if held, err := holdPorts(port-2, port, port+1); err == nil {
			p.held = append(p.held, held...)
			return port, nil
		}
	}
	return 0, errors.New("no free ports")
}

// Release holds them no longer.
func (p *Ports) Release() error {
	held := p.held
	p.held = nil
	return releasePorts(held)
}

// holdPorts holds all of them or none.
func holdPorts(ports ...int) (held []int, err error) {
	for _, port := range ports {
		fd, err := holdPort(port)
		if err != nil {
			return nil, errors.Join(err, releasePorts(held))
		}
		held = append(held, fd)
	}
	return held, nil
}

// holdPort binds a socket to a port that nobody has. From then on it may be shared with who allows that too, as servers
// do (SO_REUSEADDR); another holdPort does not, at first.
func holdPort(port int) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, err
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func releasePorts(held []int) error {
	var errs []error
	for _, fd := range held {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}

func hostPort(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
