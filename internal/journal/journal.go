// Package journal writes logs to systemd's journal by its native protocol: with priorities, and with fields of their
// own for what people look for, as in `journalctl JOB=123 -p warning`.
package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Socket is where journald takes entries.
const Socket = "/run/systemd/journal/socket"

// Connected reports whether a file, standard error for example, is the journal's: systemd.exec(5) on $JOURNAL_STREAM.
// The variable alone tells nothing, for it is inherited by programs whose output goes elsewhere.
func Connected(f *os.File) bool {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false
	}
	return os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// appendField appends a field. A value with a newline, which somebody else may have chosen, goes with its length before
// it, so that no value adds a field.
func appendField(b *bytes.Buffer, name, value string) {
	b.WriteString(name)
	if !strings.Contains(value, "\n") {
		b.WriteByte('=')
	} else {
		b.WriteByte('\n')
		b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(value))))
	}
	b.WriteString(value)
	b.WriteByte('\n')
}

// maxEntry is the size of the largest entry that is sent: what a socket takes by default is more. A longer one is the
// stack of a panic.
const maxEntry = 128 << 10

// timeout is how long an entry waits for a journald that does not read. The next ones do not wait: they are counted.
const timeout = time.Second

// writer sends entries to journald, which may be restarted, or hang. Whoever logs is never held up for long.
type writer struct {
	path string

	mu   sync.Mutex
	conn *net.UnixConn
	hung bool
	lost int // entries since the last one that was sent
}

func (w *writer) send(entry []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost > 0 {
		var b bytes.Buffer
		appendField(&b, "MESSAGE", fmt.Sprintf("journald did not read: %d entries are lost", w.lost))
		appendField(&b, "PRIORITY", "4")
		if err := w.try(b.Bytes()); err != nil {
			w.lost++
			return err
		}
		w.lost = 0
	}
	err := w.try(entry)
	if err != nil {
		w.lost++
	}
	return err
}

func (w *writer) try(entry []byte) (err error) {
	if w.conn == nil {
		if w.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram"}); err != nil {
			w.conn = nil
			return err
		}
	}
	wait := timeout
	if w.hung {
		wait = time.Millisecond // what fits into its queue, fits at once
	}
	w.conn.SetWriteDeadline(time.Now().Add(wait))
	// by its name: another journald may have it by now
	_, err = w.conn.WriteToUnix(entry, &net.UnixAddr{Name: w.path, Net: "unixgram"})
	w.hung = errors.Is(err, os.ErrDeadlineExceeded)
	return err
}

// JobAttrs are those of a job of a batch system, by farm.Allotment.Key, or of another with an ID.
func JobAttrs(key, id string) []any {
	if system, job, ok := strings.Cut(key, "/"); ok {
		return []any{"job", job, "system", system}
	}
	return []any{"job", id}
}
