package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/waittest"
)

// journald is a socket in its place.
type journald struct {
	*testing.T
	path string
	*net.UnixConn
}

func newJournald(t *testing.T) *journald {
	j := &journald{T: t, path: filepath.Join(t.TempDir(), "socket")}
	j.start()
	return j
}

func (j *journald) start() {
	j.Helper()
	var err error
	if j.UnixConn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: j.path, Net: "unixgram"}); err != nil {
		j.Fatal(err)
	}
	j.Cleanup(func() { j.Close() })
}

func (j *journald) stop() {
	j.Close()
	os.Remove(j.path)
}

// entry reads one, as journald does: NAME=VALUE\n, or NAME\n, a length, VALUE\n.
func (j *journald) entry() map[string][]string {
	j.Helper()
	text := make([]byte, 1<<20)
	j.SetReadDeadline(time.Now().Add(waittest.Limit))
	n, err := j.Read(text)
	if err != nil {
		j.Fatal(err)
	}
	got, rest := map[string][]string{}, text[:n]
	for len(rest) > 0 {
		line, after, ok := bytes.Cut(rest, []byte("\n"))
		if !ok {
			j.Fatalf("the entry ends in %q", rest)
		}
		name, value, plain := strings.Cut(string(line), "=")
		if !plain {
			size := binary.LittleEndian.Uint64(after)
			value, after = string(after[8:8+size]), after[8+size+1:]
		}
		got[name], rest = append(got[name], value), after
	}
	return got
}

func (j *journald) want(want map[string]string) {
	j.Helper()
	got := j.entry()
	for name, value := range want {
		if len(got[name]) != 1 || got[name][0] != value {
			j.Errorf("%s is %q, not %q", name, got[name], value)
		}
	}
	if len(got) != len(want) {
		j.Errorf("fields %v, want %v", got, want)
	}
}

func TestEntries(t *testing.T) {
	j := newJournald(t)
	log := slog.New(NewHandler(j.path, "grange-test"))
	of := log.With("vm", "grange-1", "job", 123)
	for name, c := range map[string]struct {
		write func()
		want  map[string]string
	}{
		"plain": {func() { log.Info("agent serves", "socket", "/x y") },
			map[string]string{"MESSAGE": `agent serves socket="/x y"`, "PRIORITY": "6"}},
		"no key": {func() { log.Info("hello") }, map[string]string{"MESSAGE": "hello", "PRIORITY": "6"}},
		"fields": {func() { of.Warn("odd", "user", "ann", "error", errors.New("no")) },
			map[string]string{"MESSAGE": "odd vm=grange-1 job=123 user=ann error=no", "PRIORITY": "4", "JOB": "123",
				"VM": "grange-1", "USER": "ann"}},
		"a value without text is no field": {func() { log.Error("bad", "user", "") },
			map[string]string{"MESSAGE": `bad user=""`, "PRIORITY": "3"}},
		"a value adds no field": {func() { log.Error("bad", "user", "ann\nPRIORITY=0") },
			map[string]string{"MESSAGE": `bad user="ann\nPRIORITY=0"`, "PRIORITY": "3", "USER": "ann\nPRIORITY=0"}},
		"groups have no fields": {func() { log.WithGroup("x").Info("odd", "job", 7) },
			map[string]string{"MESSAGE": "odd x.job=7", "PRIORITY": "6"}},
		"fields before a group": {func() { of.WithGroup("x").Info("odd", "user", "ann") },
			map[string]string{"MESSAGE": "odd vm=grange-1 job=123 x.user=ann", "PRIORITY": "6", "JOB": "123",
				"VM": "grange-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.write()
			c.want["SYSLOG_IDENTIFIER"] = "grange-test"
			j.T = t
			j.want(c.want)
		})
	}
}

// An entry that is longer than a socket takes is sent in part.
func TestLongEntry(t *testing.T) {
	j := newJournald(t)
	slog.New(NewHandler(j.path, "grange-test")).Error("panic", "stack", strings.Repeat("x\n", 1<<20))
	if got := j.entry()["MESSAGE"]; len(got) != 1 || len(got[0]) < maxEntry {
		t.Errorf("%d messages", len(got))
	}
}

// A journald that was away, or did not read, has what comes later, and hears how much it missed.
func TestAway(t *testing.T) {
	j := newJournald(t)
	log := slog.New(NewHandler(j.path, "grange-test"))
	j.stop()
	log.Info("nobody reads this")
	j.start()
	log.Info("here again")
	for _, want := range []string{"journald did not read: 1 entries are lost", "here again"} {
		if got := j.entry()["MESSAGE"]; len(got) != 1 || got[0] != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestHung(t *testing.T) {
	j := newJournald(t)
	log := slog.New(NewHandler(j.path, "grange-test"))
	done := make(chan struct{})
	const entries = 1000 // a queue has some hundreds at most
	go func() {
		defer close(done)
		for i := range entries {
			log.Info("entry", "n", i)
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("whoever logs waits for journald")
	}
	read, text := 0, make([]byte, 1<<10)
	for j.SetReadDeadline(time.Now().Add(time.Second)); ; read++ {
		if _, err := j.Read(text); err != nil {
			break
		}
	}
	log.Info("here again")
	for _, want := range []string{fmt.Sprintf("journald did not read: %d entries are lost", entries-read),
		"here again"} {
		if got := j.entry()["MESSAGE"]; len(got) != 1 || got[0] != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestConnected(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]bool{"": false, "1:1": false, fmt.Sprintf("%d:%d", st.Dev, st.Ino): true,
		fmt.Sprintf("%d:%d0", st.Dev, st.Ino): false} {
		t.Setenv("JOURNAL_STREAM", value)
		if got := Connected(f); got != want {
			t.Errorf("JOURNAL_STREAM=%q: %v", value, got)
		}
	}
}
