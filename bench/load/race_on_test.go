// SPDX-License-Identifier: Apache-2.0

//go:build race

package load

// raceDetector says that the race detector watches: it is blind to mapped memory, so stores are kept on the heap then.
const raceDetector = true
