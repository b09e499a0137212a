// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"fmt"
	"net/netip"
	"strings"
)

// ParseAllowList reads haAllowList: addresses and CIDR prefixes separated by commas; empty allows all.
func ParseAllowList(text string) ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, word := range strings.Split(text, ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		if addr, err := netip.ParseAddr(word); err == nil {
			list = append(list, netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()))
			continue
		}
		prefix, err := netip.ParsePrefix(word)
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a prefix such as 10.0.0.0/8", word)
		}
		list = append(list, prefix)
	}
	return list, nil
}

func allowed(list []netip.Prefix, addr netip.Addr) bool {
	for _, prefix := range list {
		if prefix.Contains(addr.Unmap()) {
			return true
		}
	}
	return len(list) == 0
}
