// SPDX-License-Identifier: Apache-2.0

package storage

import "fmt"

// PutMessageStatus is the outcome of a put. Source: PutMessageStatus, in 4.9's order; spelling of 4.9.
type PutMessageStatus int32

const (
	PutOK PutMessageStatus = iota
	FlushDiskTimeout
	FlushSlaveTimeout
	SlaveNotAvailable
	ServiceNotAvailable
	CreateMappedFileFailed
	MessageIllegal
	PropertiesSizeExceeded
	OSPageCacheBusy
	UnknownError
	// QueueFull and QueueTimeout have no Java twin: Java's thread pool refuses (OVERLOAD) or cleans
	// (TIMEOUT_CLEAN_QUEUE) in these cases. Both are answered SYSTEM_BUSY.
	QueueFull
	QueueTimeout
)

var putMessageStatusNames = [...]string{
	PutOK:                  "PUT_OK",
	FlushDiskTimeout:       "FLUSH_DISK_TIMEOUT",
	FlushSlaveTimeout:      "FLUSH_SLAVE_TIMEOUT",
	SlaveNotAvailable:      "SLAVE_NOT_AVAILABLE",
	ServiceNotAvailable:    "SERVICE_NOT_AVAILABLE",
	CreateMappedFileFailed: "CREATE_MAPEDFILE_FAILED",
	MessageIllegal:         "MESSAGE_ILLEGAL",
	PropertiesSizeExceeded: "PROPERTIES_SIZE_EXCEEDED",
	OSPageCacheBusy:        "OS_PAGECACHE_BUSY",
	UnknownError:           "UNKNOWN_ERROR",
	QueueFull:              "PUT_QUEUE_FULL",
	QueueTimeout:           "PUT_QUEUE_TIMEOUT",
}

// String is Java's name of the status.
func (s PutMessageStatus) String() string {
	if s < 0 || int(s) >= len(putMessageStatusNames) {
		return fmt.Sprintf("PutMessageStatus(%d)", int32(s))
	}
	return putMessageStatusNames[s]
}
