package imagerecipe

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

func TestParse(t *testing.T) {
	r, err := Parse([]byte(`kind = "debian"
packages = ["curl=7.88.1-10+deb12u8", "openssh-server"]
snapshot = "20260101T000000Z"
cloud_init = false
run = ["true"]
[[file]]
path = "/etc/motd"
text = "hello"
[[user]]
name = "alice"
groups = ["adm"]
`))
	if err != nil || r.Architecture != "amd64" || r.Firmware != "bios" || *r.CloudInit ||
		r.time().Unix() != 1767225600 || len(r.sources()) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	for text, says := range map[string]string{
		``:                                "unknown kind",
		`kind = "windows"`:                "unknown kind",
		"kind = \"micro\"\nkernel = 1":    "line 2: unknown key",
		"kind = \"micro\"\nrun = [\"x\"]": "only packages",
		"kind = \"micro\"\npackages = [\"aa=1\"]":                                  "versions",
		"kind = \"cloud\"\nsuite = \"trixie\"":                                     "only packages",
		"kind = \"debian\"\npackages = [\"--yes\"]":                                "invalid package",
		"kind = \"debian\"\nfrom = \"/x\"":                                         "of kind",
		"kind = \"change\"\nfrom = \"x\"\nkernel_parameters = [\"a b\"]":           "invalid kernel parameter",
		"kind = \"debian\"\nkernel_parameters = [\"auto\"]":                        "of kind",
		"kind = \"debian\"\nkernel_parameters = [\"a\\nb\"]":                       "invalid kernel parameter",
		"kind = \"micro\"\nkernel_parameters = [\"a\"]":                            "only packages",
		"kind = \"debian\"\nsuite = \"a b\"":                                       "invalid suite",
		"kind = \"debian\"\nsnapshot = \"2026\"":                                   "invalid snapshot",
		"kind = \"debian\"\nsources = [\"rm -rf\"]":                                "invalid source",
		"kind = \"debian\"\narchitecture = \"arm64\"":                              "unknown architecture",
		"kind = \"debian\"\narchitecture = \"i386\"\nfirmware = \"efi\"":           "unknown firmware",
		"kind = \"debian\"\nsize = \"1G\"":                                         "at least 2G",
		"kind = \"change\"":                                                        `needs "from"`,
		"kind = \"change\"\nfrom = \"x\"\nepoch = 3":                               "image's own",
		"kind = \"change\"\nfrom = \"x\"\nsize = \"9G\"":                           "image's own",
		"kind = \"debian\"\nmemory = \"9G\"":                                       "of kind",
		"kind = \"micro\"\nfirmware = \"efi\"":                                     "only packages",
		"kind = \"change\"\nfrom = \"x\"\nsha256 = \"3\"":                          "invalid sha256",
		"kind = \"debian\"\n[[file]]\npath = \"etc\"":                              "not absolute",
		"kind = \"debian\"\n[[file]]\npath = \"/a/../b\"":                          "detours",
		"kind = \"debian\"\n[[file]]\npath = \"/a\"\nmode = \"rw\"":                "not octal",
		"kind = \"debian\"\n[[file]]\npath = \"/a\"\ntext = \"x\"\nsource = \"y\"": "a text and a source",
		"kind = \"debian\"\n[[user]]\nname = \"a b\"":                              "invalid user",
		"kind = \"debian\"\n[[user]]\nname = \"a\"\ngroups = [\"x y\"]":            "invalid group",
	} {
		_, err := Parse([]byte(text))
		var known *farm.Error
		if !errors.As(err, &known) || known.Code != CodeBadRecipe || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, wanted %q", text, err, says)
		}
	}
}

// TestPayload: what the script is given has all of the recipe, and is whole.
func TestPayload(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "beside"), []byte("source"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := Recipe{Kind: Change, Packages: []string{"a", "b"}, Run: []string{"one", "two"},
		Files: []File{{Path: "/etc/x", Source: "beside", Mode: "4755"}, {Path: "/etc/y", Text: "text"}},
		Users: []User{{Name: "u", Keys: []string{"key"}}, {Name: "v", UID: 7, Shell: "/bin/sh", Groups: []string{"g", "h"}}}}
	file := filepath.Join(dir, "payload")
	if err := writePayload(file, r, dir, time.Unix(7, 0), true); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := contents(t, f)
	for name, want := range map[string]string{"packages": "a\nb", "run": "one\ntwo\n", "u.keys": "key\n",
		"users": "u - - -\nv 7 /bin/sh g,h\n"} {
		if got[name] != want {
			t.Errorf("%s is %q", name, got[name])
		}
	}
	inner := contents(t, strings.NewReader(got["files.tar"]))
	if inner["etc/x"] != "source" || inner["etc/y"] != "text" {
		t.Errorf("files: %q", inner)
	}
	r.Files[0].Source = "missing"
	if err := writePayload(file, r, dir, time.Unix(7, 0), true); err == nil {
		t.Error("a missing source was taken")
	}
}

func contents(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	all := map[string]string{}
	for entries := tar.NewReader(r); ; {
		h, err := entries.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(entries)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = string(text)
	}
}

// TestNothingIsReplaced: what is there already stays.
func TestNothingIsReplaced(t *testing.T) {
	dir := t.TempDir()
	_, err := Build(t.Context(), Recipe{Kind: Micro}, Options{Out: dir, Cache: filepath.Join(dir, "cache")})
	if err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Error(err)
	}
}

// TestFollow: a program's output is progress, and the end of its complaints the error.
func TestFollow(t *testing.T) {
	var told []string
	progress := func(text string) { told = append(told, text) }
	err := follow(shell(t, "echo one; echo two; echo bad >&2; exit 3"), progress)
	if err == nil || !strings.Contains(err.Error(), "bad") || strings.Join(told, " ") != "one two" {
		t.Errorf("%q, %v", told, err)
	}
	if err := follow(shell(t, "true"), progress); err != nil {
		t.Error(err)
	}
}

// TestComplaint: apt's own word comes through, which mmdebstrap's ends would hide.
func TestComplaint(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "",
		"E: no package x":    "E: no package x",
		"1\n2\n3\n4\n5\n6\n": "2; 3; 4; 5; 6",
		"I: running apt-get update\nE: Failed to fetch Packages.xz\n   Hashes of expected file:\n" +
			"E: Some index files failed to download\nE: apt-get update failed\nI: removing tempdir\n" +
			"E: mmdebstrap failed to run\nmmdebstrap cannot make the system": "E: Failed to fetch Packages.xz; " +
			"E: Some index files failed to download; E: apt-get update failed; mmdebstrap cannot make the system",
	} {
		if got := complaint(text); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

func shell(t *testing.T, script string) *exec.Cmd {
	return exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
}
