package procstat

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	s := Parse([]byte("17 (a) Z (b) S 1 17 17 0 -1 4194560 9 0 0 0 5 6 0 0 20 0 1 0 4711 0 0\n"))
	for number, want := range map[int]string{2: "", 3: "S", 4: "1", 14: "5", 15: "6", 22: "4711", 24: "0", 25: "", 99: ""} {
		if got := s.Field(number); got != want {
			t.Errorf("field %d is %q, not %q", number, got, want)
		}
	}
	if at, err := s.Started(); at != 4711 || err != nil {
		t.Error(at, err)
	}
	for _, text := range []string{"", "17 (a) S 1", "17 (a"} {
		if at, err := Parse([]byte(text)).Started(); err == nil {
			t.Errorf("%q: %d", text, at)
		}
	}
}

// TestStarted: a process has one start; one that has ended and that nobody waited for has none.
func TestStarted(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	first, err := Started(cmd.Process.Pid)
	again, err2 := Started(cmd.Process.Pid)
	if errors.Join(err, err2) != nil || first == 0 || first != again {
		t.Error(first, again, err, err2)
	}
	cmd.Process.Kill()
	for err == nil {
		time.Sleep(time.Millisecond)
		_, err = Started(cmd.Process.Pid)
	}
	if !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
