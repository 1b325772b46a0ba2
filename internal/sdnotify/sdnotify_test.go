package sdnotify

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/waittest"
)

func TestSend(t *testing.T) {
	for name, path := range map[string]string{"path": filepath.Join(t.TempDir(), "notify"),
		"abstract": "@grange-test-" + filepath.Base(t.TempDir()) + time.Now().String()} {
		t.Run(name, func(t *testing.T) {
			l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			t.Setenv("NOTIFY_SOCKET", path)
			for state, want := range map[string]string{Ready: `^READY=1$`, Stopping: `^STOPPING=1$`,
				Reloading(): `^RELOADING=1\nMONOTONIC_USEC=[1-9]\d+$`} {
				if err := Send(state); err != nil {
					t.Fatal(err)
				}
				buffer := make([]byte, 200)
				l.SetReadDeadline(time.Now().Add(waittest.Limit))
				n, err := l.Read(buffer)
				if err != nil || !regexp.MustCompile(want).Match(buffer[:n]) {
					t.Errorf("got %q, %v; want %s", buffer[:n], err, want)
				}
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Send(Ready); err != nil {
		t.Error(err)
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	if err := Send(Ready); err == nil {
		t.Error("a socket that is not there is no error")
	}
}

func TestWatchdog(t *testing.T) {
	for _, c := range []struct {
		usec, pid string
		want      time.Duration
	}{
		{"", "", 0},
		{"60000000", "", time.Minute},
		{"60000000", strconv.Itoa(os.Getpid()), time.Minute},
		{"60000000", "1", 0}, // our parent's
		{"x", "", 0},
		{"-1", "", 0},
		{"18446744073709551615", "", 0},
	} {
		t.Setenv("WATCHDOG_USEC", c.usec)
		t.Setenv("WATCHDOG_PID", c.pid)
		if got := Watchdog(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestKeepAlive has a service that works, does not, and works again.
func TestKeepAlive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "40000")
	t.Setenv("WATCHDOG_PID", "")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	turns, told := 0, make(chan int, 1000)
	hangs := func(ctx context.Context) error {
		turns++
		if turns == 3 || turns == 4 { // hangs, until it is given up
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		KeepAlive(ctx, hangs, func(error) { told <- turns })
	}()
	l.SetReadDeadline(time.Now().Add(waittest.Limit))
	for range 5 {
		text := make([]byte, 100)
		n, err := l.Read(text)
		if err != nil || string(text[:n]) != "WATCHDOG=1" {
			t.Fatalf("%q, %v", text[:n], err)
		}
	}
	stop()
	<-over
	if first, second := <-told, <-told; first != 3 || second != 4 || turns < 7 || len(told) > 0 {
		t.Errorf("turns %d and %d of %d failed, and %d more", first, second, turns, len(told))
	}
}
