package subid

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	got := Parse([]byte("lisa:100000:65536\n# a comment\n1002:200000:10\n\nshort:5\nbad:x:1\nnone:5:0\n:7:7\n" +
		"end:4294967290:100\nhuge:4294967296:1\n"))
	want := []Range{{"lisa", 100000, 65536}, {"1002", 200000, 10}, {"end", 4294967290, 100}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for id, in := range map[uint32]bool{99999: false, 100000: true, 165535: true, 165536: false} {
		if want[0].Has(id) != in {
			t.Errorf("%d in %v: %v", id, want[0], !in)
		}
	}
	if last := want[2]; !last.Has(4294967295) || last.Has(5) {
		t.Error("a range that ends behind the last ID goes on at the first")
	}
	if n, ok := want[1].Number(); !ok || n != 1002 {
		t.Errorf("owner %d, %v", n, ok)
	}
}

// TestFiles reads lists that come, change and go.
func TestFiles(t *testing.T) {
	f := &Files{Root: t.TempDir()}
	dir := filepath.Join(f.Root, "etc")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		f.looked = time.Time{}
	}
	if _, ok := f.User(100005); ok || f.Elsewhere() {
		t.Error("a host without files has subordinate IDs")
	}
	write("subuid", "lisa:100000:65536\n")
	write("subgid", "kim:300000:65536\n")
	write("nsswitch.conf", "passwd: files sss\nsubid: files\n")
	if r, ok := f.User(100005); !ok || r.Owner != "lisa" || f.Elsewhere() {
		t.Errorf("%v, %v", r, ok)
	}
	if r, ok := f.Group(300000); !ok || r.Owner != "kim" {
		t.Errorf("%v, %v", r, ok)
	}
	if _, ok := f.Group(100005); ok {
		t.Error("a list of users counts for groups")
	}
	write("subuid", "maxi:100000:65537\n")
	write("nsswitch.conf", " subid: sss # and no files\n")
	if r, _ := f.User(100005); r.Owner != "maxi" || !f.Elsewhere() {
		t.Errorf("a list that was changed: %v", r)
	}
	if err := os.Remove(filepath.Join(dir, "subuid")); err != nil {
		t.Fatal(err)
	}
	f.looked = time.Time{}
	if r, ok := f.User(100005); ok {
		t.Errorf("a list that was removed: %v", r)
	}
}

func TestNamesOther(t *testing.T) {
	for text, want := range map[string]bool{"": false, "subid: files": false, "subid: sss\n": true,
		"passwd: files sss\n": false, "#subid: sss\n": false, "subid: files [NOTFOUND=return] sss\n": true,
		"subid:\n": false, "subid: [x] files\n": false} {
		if got := namesOther([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
