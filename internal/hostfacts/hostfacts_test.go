package hostfacts_test

import (
	"os"
	"testing"

	"github.com/grange-project/grange/internal/hostfacts"
)

func TestReadLive(t *testing.T) {
	h, err := hostfacts.Read(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	if h.Name == "" || h.Kernel.Release == "" || h.Memory.Total == 0 || len(h.Counters) == 0 || h.CPUTime.User == 0 {
		t.Errorf("this machine lacks the plainest facts: %+v", h)
	}
}
