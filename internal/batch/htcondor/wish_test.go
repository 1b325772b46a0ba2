package htcondor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/classad"
	"github.com/grange-project/grange/internal/farm"
)

func parse(t *testing.T, text string) classad.Ad {
	t.Helper()
	ad, err := classad.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return ad
}

func TestWishOf(t *testing.T) {
	yes, no := true, false
	for text, want := range map[string]Wish{
		"":               {},
		"WantVM = true":  {VM: &yes},
		"wantvm = FALSE": {VM: &no},
		"VMImage = \"sl9\"\nVMShape = \"large\"\nVMMounts = \"/data:/data:ro, /sw\"\nCmd = \"/bin/x\"": {Image: "sl9",
			Shape: "large", Mounts: []string{"/data:/data:ro", "/sw"}},
	} {
		got, err := WishOf(parse(t, text))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	}
	// What cannot be understood is never taken for nothing: "False" as a string would send a job where it did not want
	// to go.
	for _, text := range []string{"WantVM = \"False\"", "WantVM = 0", "WantVM = Owner == \"x\"", "VMImage = sl9",
		"VMImage = \"\"", "VMImage = \"--metal\"", "VMShape = 3", "VMMounts = \"data\"", "VMMounts = \"--image x\"",
		"VMMounts = undefined"} {
		if w, err := WishOf(parse(t, text)); err == nil {
			t.Errorf("%s is %+v", text, w)
		}
	}
}

func TestOnMetal(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		site  Metal
		vm    *bool
		metal bool
		fails bool
	}{
		{MetalNever, nil, false, false}, {MetalNever, &yes, false, false}, {MetalNever, &no, false, true},
		{MetalAsked, nil, false, false}, {MetalAsked, &yes, false, false}, {MetalAsked, &no, true, false},
		{MetalDefault, nil, true, false}, {MetalDefault, &yes, false, false}, {MetalDefault, &no, true, false},
		{"", nil, false, false}, {"", &no, false, true}, // what nobody set is the strictest
	} {
		got, err := c.site.OnMetal(Wish{VM: c.vm})
		if got != c.metal || (err != nil) != c.fails {
			t.Errorf("%q, %v: %t, %v", c.site, c.vm, got, err)
		}
	}
}

// TestVMDescribedAlone: a job that says what VM it wants, and not that it wants one, does not run on the host without a
// word.
func TestVMDescribedAlone(t *testing.T) {
	for _, text := range []string{"VMImage = \"sl9\"", "VMShape = \"large\"", "VMMounts = \"/data\""} {
		for _, c := range []struct {
			site  Metal
			also  string
			metal bool
			code  farm.Code
		}{
			{MetalDefault, "", false, CodeBadWish}, {MetalDefault, "\nWantVM = True", false, ""},
			{MetalDefault, "\nWantVM = False", true, ""}, {MetalAsked, "", false, ""}, {MetalNever, "", false, ""},
		} {
			w, err := WishOf(parse(t, text+c.also))
			if err != nil {
				t.Fatal(err)
			}
			metal, err := c.site.OnMetal(w)
			if metal != c.metal || (err != nil) != (c.code != "") || err != nil && !farm.IsCode(err, c.code) {
				t.Errorf("%s%s at a site %q: %v %v", text, c.also, c.site, metal, err)
			}
		}
	}
}

// TestReadJobAd: only an ad that HTCondor wrote for this job, and that its user could not, may send the job to metal.
func TestReadJobAd(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, ".job.ad")
	write := func(text string) {
		os.Remove(path)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const good = "WantVM = False\nRemoteHost = \"slot1_1@ex1\"\n"
	read := func(slot string) error {
		_, err := ReadJobAd(path, slot, os.Getpid())
		return err
	}
	write(good)
	if os.Getuid() == 0 { // root's own file is not a user's
		if err := read("slot1_1"); err != nil {
			t.Error(err)
		}
		if err := os.Chown(path, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if err := read("slot1_1"); err != nil {
			t.Errorf("of another user, as HTCondor's files are: %v", err)
		}
	} else if err := read("slot1_1"); err == nil {
		t.Error("a file of the job's own user was believed")
	}
	for name, do := range map[string]func(){
		"of another slot":    func() { write(strings.Replace(good, "slot1_1", "slot1_2", 1)) },
		"of no slot":         func() { write("WantVM = False\n") },
		"that all can write": func() { write(good); os.Chmod(path, 0o666) },
		"with a second name": func() { write(good); os.Remove(dir + "/b"); os.Link(path, dir+"/b") },
		"older than the job": func() { write(good); old := time.Now().Add(-time.Hour); os.Chtimes(path, old, old) },
		"that is a link": func() {
			os.Remove(path)
			os.WriteFile(dir+"/c", []byte(good),
				0o644)
			os.Symlink(dir+"/c", path)
		},
		"that is no ad":       func() { write("hello") },
		"that is not there":   func() { os.Remove(path) },
		"that is a directory": func() { os.Mkdir(path, 0o755) },
	} {
		os.RemoveAll(path)
		do()
		if err := read("slot1_1"); err == nil {
			t.Errorf("an ad %s was believed", name)
		}
	}
	os.RemoveAll(path)
	write(good)
	if err := read(""); err == nil {
		t.Error("without a slot")
	}
}

// TestErrorsSayItOnce: farm.Error adds what it wraps to its message.
func TestErrorsSayItOnce(t *testing.T) {
	_, readErr := ReadJobAd("/none", "slot1", os.Getpid())
	for _, err := range []error{readErr, notSet("ex1", errors.New("ex1 is off"))} {
		inner := errors.Unwrap(err)
		if inner == nil || strings.Count(err.Error(), inner.Error()) != 1 {
			t.Errorf("%v", err)
		}
	}
}
