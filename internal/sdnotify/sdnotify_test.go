package sdnotify

import (
	"net"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

func TestSend(t *testing.T) {
	for name, path := range map[string]string{"path": filepath.Join(t.TempDir(), "notify"), "abstract": "@grange-test-" + filepath.Base(t.TempDir()) + time.Now().String()} {
		t.Run(name, func(t *testing.T) {
			l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			t.Setenv("NOTIFY_SOCKET", path)
			for state, want := range map[string]string{Ready: `^READY=1$`, Stopping: `^STOPPING=1$`, Reloading(): `^RELOADING=1\nMONOTONIC_USEC=[1-9]\d+$`} {
				if err := Send(state); err != nil {
					t.Fatal(err)
				}
				buffer := make([]byte, 200)
				l.SetReadDeadline(time.Now().Add(10 * time.Second))
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
