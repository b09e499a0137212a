// SPDX-License-Identifier: Apache-2.0

package message

import (
	"math"
	"net/netip"
	"strings"
	"testing"
)

func TestOffsetMessageID(t *testing.T) {
	f := func(host string, offset int64, want string) {
		t.Helper()
		addr := netip.MustParseAddrPort(host)
		got := string(AppendOffsetMessageID([]byte("x"), addr, offset))
		if got != "x"+want {
			t.Fatalf("id of %s at %d: %s; want x%s", host, offset, got, want)
		}
		for _, id := range []string{want, strings.ToLower(want)} {
			if parsed, at, err := ParseOffsetMessageID(id); err != nil || parsed != addr || at != offset {
				t.Fatalf("ParseOffsetMessageID(%q)=%v, %d, %v", id, parsed, at, err)
			}
		}
	}
	f("127.0.0.1:30911", 0, "7F000001000078BF0000000000000000")
	f("10.0.0.7:10911", 0x123456789A, "0A00000700002A9F000000123456789A")
	f("255.255.255.255:65535", math.MaxInt64, "FFFFFFFF0000FFFF7FFFFFFFFFFFFFFF")
	f("[fe80::1]:10911", 255, "FE80000000000000000000000000000100002A9F00000000000000FF")
}

func TestParseOffsetMessageIDRefuses(t *testing.T) {
	f := func(id string) {
		t.Helper()
		if host, offset, err := ParseOffsetMessageID(id); err == nil {
			t.Fatalf("ParseOffsetMessageID(%q)=%v, %d", id, host, offset)
		}
	}
	f("")
	f("7F000001000078BF000000000000000")
	f("7F000001000078BF000000000000000G")
	f("7F000001000178BF0000000000000000") // port beyond 65535
	f("7F000001000078BF8000000000000000") // negative offset
	f(strings.Repeat("0", 48))
	f(strings.Repeat("0", 1000))
}

func FuzzParseOffsetMessageID(f *testing.F) {
	f.Add("7F000001000078BF0000000000000000")
	f.Add("FE80000000000000000000000000000100002A9F00000000000000FF")
	f.Fuzz(func(t *testing.T, id string) {
		host, offset, err := ParseOffsetMessageID(id)
		if err != nil || host.Addr().Is4In6() { // such an address becomes IPv4
			return
		}
		if again := string(AppendOffsetMessageID(nil, host, offset)); again != strings.ToUpper(id) {
			t.Fatalf("%q became %q", id, again)
		}
	})
}
