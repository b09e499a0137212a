// SPDX-License-Identifier: Apache-2.0

package proc

import "loopmq/bench/result"

// shell is a broker that is a shell script.
type shell string

func (s shell) Build() result.Build { return result.Build{Name: "sh"} }

func (s shell) Broker(string, string) (string, []string) { return "/bin/sh", []string{"-c", string(s)} }
