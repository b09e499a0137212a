// SPDX-License-Identifier: Apache-2.0

// Package message holds the bytes of one stored message: layout, properties, system flags, message ids.
package message
