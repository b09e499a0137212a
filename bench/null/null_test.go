// SPDX-License-Identifier: Apache-2.0

package null

import (
	"testing"

	"loopmq/reactor/remoting"
)

func request(t *testing.T, opaque int32, body string) []byte {
	t.Helper()
	cmd := &remoting.Command{Code: remoting.SendMessageV2, Opaque: opaque, Body: []byte(body)}
	cmd.Ext.Add("a", "topic")
	return cmd.AppendTo(nil, 0)
}

// However the requests are cut, each is answered once, with its own id.
func TestAnswersEachRequestOnce(t *testing.T) {
	var stream []byte
	ids := []int32{7, 1 << 30, -3}
	for _, id := range ids {
		stream = append(stream, request(t, id, "a body with \"opaque\":1 in it")...)
	}
	for cut := range len(stream) {
		var answers []byte
		at := 0
		for _, end := range []int{cut, len(stream)} {
			var used int
			var ok bool
			if answers, used, ok = answer(answers, stream[at:end]); !ok {
				t.Fatalf("cut at %d: refused", cut)
			}
			at += used
		}
		for _, id := range ids {
			n, err := remoting.FrameLength(answers)
			if err != nil || n == 0 || n > len(answers) {
				t.Fatalf("cut at %d: an answer of %d bytes, %v", cut, n, err)
			}
			var got remoting.Command
			if err := remoting.Decode(answers[:n], &got); err != nil || got.Opaque != id || got.Code != remoting.Success || got.Flag&remoting.FlagResponse == 0 {
				t.Fatalf("cut at %d: answer %+v, %v; want to %d", cut, got, err, id)
			}
			answers = answers[n:]
		}
		if len(answers) > 0 {
			t.Fatalf("cut at %d: %d bytes more", cut, len(answers))
		}
	}
}

// A request that asks for no answer gets none: it would be taken for a late one.
func TestOnewayIsNotAnswered(t *testing.T) {
	cmd := &remoting.Command{Code: remoting.SendMessageV2, Opaque: 5, Flag: remoting.FlagOneway}
	stream := append(cmd.AppendTo(nil, 0), request(t, 7, `"flag":2`)...)
	answers, used, ok := answer(nil, stream)
	if n, err := remoting.FrameLength(answers); !ok || used != len(stream) || err != nil || n != len(answers) {
		t.Errorf("%d of %d bytes used, %d bytes of answers to one request: %v, %v", used, len(stream), len(answers), ok, err)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte{0, 0, 0, 9, 0, 0, 0, 5, '{', '}', 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, used, _ := answer(nil, b); used > len(b) {
			t.Fatalf("%d bytes used of %d", used, len(b))
		}
	})
}
