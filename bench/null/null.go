// SPDX-License-Identifier: Apache-2.0

// Package null is a server that does nothing: it answers each request of the remoting protocol at once with the same
// words. A generator beside it sees what the machine, the kernel and the generator itself add to a latency: what stands
// still for a null server stands still for every server.
package null

import (
	"bytes"
	"encoding/binary"

	"github.com/panjf2000/gnet/v2"
)

// frameMax bounds a request, as brokers do.
const frameMax = 16 << 20

// The answer around the request's id. It is good enough for a send, and its body for a list of topics: there are none.
const (
	answerStart = `{"code":0,"flag":1,"language":"OTHER","opaque":`
	answerEnd   = `,"serializeTypeCurrentRPC":"JSON","version":401,"extFields":{"msgId":"7F00000100002A9F0000000000000000","queueId":"0","queueOffset":"0"}}`
	answerBody  = `{}`
)

var (
	opaqueKey = []byte(`"opaque":`)
	oneway    = []byte(`"flag":2`) // asks for no answer; in a text of a header the quotes would be escaped
)

type server struct {
	gnet.BuiltinEventEngine
	ready func()
}

// Serve answers on an address of this host, until it is stopped with the process.
func Serve(addr string, ready func()) error {
	return gnet.Run(&server{ready: ready}, "tcp://"+addr, gnet.WithReuseAddr(true))
}

func (s *server) OnBoot(gnet.Engine) gnet.Action {
	if s.ready != nil {
		s.ready()
	}
	return gnet.None
}

func (s *server) OnTraffic(c gnet.Conn) gnet.Action {
	b, err := c.Peek(-1)
	if err != nil {
		return gnet.Close
	}
	answers, used, ok := answer(nil, b)
	if !ok {
		return gnet.Close
	}
	_, _ = c.Discard(used)
	if len(answers) > 0 {
		_, _ = c.Write(answers)
	}
	return gnet.None
}

// answer appends the answers to the whole requests at the start of b: used bytes. False says that there is one that is
// none: only headers of JSON are known.
func answer(dst, b []byte) (answers []byte, used int, ok bool) {
	const lengths = 8 // of the frame, and of the header with its form
	for len(b)-used >= lengths {
		frame := b[used:]
		size := int(binary.BigEndian.Uint32(frame)) + 4
		header := int(binary.BigEndian.Uint32(frame[4:]))
		if size > frameMax || header > size-lengths {
			return dst, used, false
		}
		if len(frame) < size {
			break
		}
		id, found := opaque(frame[lengths : lengths+header])
		if !found {
			return dst, used, false
		}
		if !bytes.Contains(frame[lengths:lengths+header], oneway) {
			dst = appendAnswer(dst, id)
		}
		used += size
	}
	return dst, used, true
}

// opaque is the digits of a request's id.
func opaque(header []byte) ([]byte, bool) {
	_, id, found := bytes.Cut(header, opaqueKey)
	n := 0
	for n < len(id) && (id[n] == '-' || '0' <= id[n] && id[n] <= '9') {
		n++
	}
	return id[:n], found && n > 0
}

func appendAnswer(dst, id []byte) []byte {
	header := len(answerStart) + len(id) + len(answerEnd)
	dst = binary.BigEndian.AppendUint32(dst, uint32(4+header+len(answerBody)))
	dst = binary.BigEndian.AppendUint32(dst, uint32(header))
	dst = append(dst, answerStart...)
	dst = append(dst, id...)
	dst = append(dst, answerEnd...)
	return append(dst, answerBody...)
}
