// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
)

func testBatch() (batch []byte, elements []BatchElement) {
	for i := range 5 {
		e := BatchElement{
			Flag:       int32(i - 2),
			Body:       bytes.Repeat([]byte{byte(i)}, i*10),
			Properties: []byte(fmt.Sprintf("KEYS\x01k%d", i))[:i%2*7],
		}
		elements = append(elements, e)
		batch = AppendBatchElement(batch, &e)
	}
	return batch, elements
}

// countBatch counts the messages of a batch.
func countBatch(batch []byte) (n int, err error) {
	for len(batch) > 0 {
		if _, batch, err = NextBatchElement(batch); err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

func TestBatchRoundTrip(t *testing.T) {
	batch, want := testBatch()
	n, err := countBatch(batch)
	if err != nil || n != len(want) {
		t.Fatalf("countBatch: %d, %v", n, err)
	}
	for i := range want {
		var e BatchElement
		if e, batch, err = NextBatchElement(batch); err != nil {
			t.Fatal(err)
		}
		if e.Flag != want[i].Flag || !bytes.Equal(e.Body, want[i].Body) || !bytes.Equal(e.Properties, want[i].Properties) {
			t.Fatalf("element %d: %+v; want %+v", i, e, want[i])
		}
	}
	if len(batch) != 0 {
		t.Fatalf("%d bytes left", len(batch))
	}
}

// TestBatchAnyCut: a batch that ends anywhere but behind an element is refused as a whole.
func TestBatchAnyCut(t *testing.T) {
	batch, elements := testBatch()
	ends := map[int]bool{0: true}
	for end, i := 0, 0; i < len(elements); i++ {
		end += batchElementSizeMin + len(elements[i].Body) + len(elements[i].Properties)
		ends[end] = true
	}
	for cut := range batch {
		if _, err := countBatch(batch[:cut]); errors.Is(err, ErrBatch) == ends[cut] {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
}

func TestBatchRefusesLengths(t *testing.T) {
	f := func(at int, value uint32, width int) {
		t.Helper()
		batch := AppendBatchElement(nil, &BatchElement{Body: []byte("body"), Properties: []byte("a\x01b")})
		if width == 2 {
			binary.BigEndian.PutUint16(batch[at:], uint16(value))
		} else {
			binary.BigEndian.PutUint32(batch[at:], value)
		}
		if _, err := countBatch(batch); !errors.Is(err, ErrBatch) {
			t.Fatalf("%#x at %d: %v", value, at, err)
		}
	}
	f(16, 0xFFFFFFFF, 4)
	f(16, 0x7FFFFFFF, 4)
	f(16, 0x80000000, 4)
	f(16, 8, 4)
	f(24, 0xFFFF, 2)
	f(24, 0x7FFF, 2)
	f(24, 4, 2)
}

func FuzzBatchDecode(f *testing.F) {
	batch, _ := testBatch()
	f.Add(batch)
	f.Add(batch[:30])
	f.Add(make([]byte, batchElementSizeMin))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := countBatch(b)
		if err != nil {
			return
		}
		var again []byte
		rest, left := b, n
		for ; len(rest) > 0; left-- {
			var e BatchElement
			if e, rest, err = NextBatchElement(rest); err != nil {
				t.Fatalf("counted %d, then %v", n, err)
			}
			again = AppendBatchElement(again, &e)
		}
		if left != 0 || len(again) != len(b) {
			t.Fatalf("%d elements more than counted, %d bytes of %d", -left, len(again), len(b))
		}
	})
}
