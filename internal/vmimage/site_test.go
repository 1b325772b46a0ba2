package vmimage

import (
	"errors"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestVouch: the mark follows the bytes, through names and a new Open, and goes with them.
func TestVouch(t *testing.T) {
	s := testStore(t)
	add := func(name, content string) Image { return mustImport(t, s, name, rawDisk(t, content)) }
	if add("a", "one").Site {
		t.Fatal("an image is vouched for by nobody's word")
	}
	if i, err := s.Vouch("a"); err != nil || !i.Site {
		t.Fatalf("Vouch: %+v, %v", i, err)
	}
	if !add("b", "one").Site {
		t.Error("the same bytes under another name lost the mark")
	}
	again, err := Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if i, err := again.Get("a"); err != nil || !i.Site {
		t.Errorf("after another Open: %+v, %v", i, err)
	}
	if add("a", "two").Site {
		t.Error("other bytes under a vouched name have the mark")
	}
	for _, name := range []string{"b", "a"} {
		if err := s.Remove(name, nil); err != nil {
			t.Fatal(err)
		}
	}
	if add("a", "one").Site {
		t.Error("the mark outlived its image")
	}
	if _, err := s.Vouch("nothing"); !isNoImage(err) {
		t.Errorf("Vouch of nothing: %v", err)
	}
}

func isNoImage(err error) bool {
	e := new(farm.Error)
	return errors.As(err, &e) && e.Code == farm.CodeNoImage
}
