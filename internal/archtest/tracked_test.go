package archtest

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// maxFile bounds the files of the repository: every clone gets all that was ever committed.
const maxFile = 512 << 10

// magics begin the files that a compiler or linker wrote.
var magics = map[string]string{
	"\x7fELF":          "an ELF program",
	"MZ":               "a PE program",
	"\xfe\xed\xfa\xce": "a Mach-O program", "\xce\xfa\xed\xfe": "a Mach-O program",
	"\xfe\xed\xfa\xcf": "a Mach-O program", "\xcf\xfa\xed\xfe": "a Mach-O program",
	"\xca\xfe\xba\xbe": "a Mach-O program or a Java class",
	"\x00asm":          "a WebAssembly program",
	"!<arch>\n":        "an archive of object files",
}

// unwanted returns why a file may not be committed, or "". Scripts may be executable.
func unwanted(text []byte, executable bool) string {
	for magic, kind := range magics {
		if bytes.HasPrefix(text, []byte(magic)) {
			return "is " + kind + ": build programs into bin, which is ignored"
		}
	}
	switch {
	case executable && !bytes.HasPrefix(text, []byte("#!")):
		return "is executable and no script"
	case len(text) > maxFile:
		return "is larger than 512 KiB"
	}
	return ""
}

// tracked returns the regular files that Git tracks, and those it would track: neither committed nor ignored. A tree
// without Git has all files but those of bin and dist.
func tracked(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(top, ".git")); err != nil {
		return unpacked(t)
	}
	// Root tests the trees of others, too.
	out, err := exec.Command("git", "-c", "safe.directory=*", "-C", top, "ls-files", "-z",
		"--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatal("git ls-files: ", err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

func unpacked(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(top, path)
		switch {
		case err != nil:
			return err
		case name == "bin" || name == "dist":
			return filepath.SkipDir
		case d.Type().IsRegular():
			all = append(all, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestNoBinaries refuses programs and large files in the repository.
func TestNoBinaries(t *testing.T) {
	files := tracked(t)
	if len(files) < 500 {
		t.Fatalf("%d files found: the test looks in the wrong place", len(files))
	}
	for _, name := range files {
		info, err := os.Lstat(filepath.Join(top, name))
		if err != nil || !info.Mode().IsRegular() {
			continue // deleted and not yet committed, or a link
		}
		if why := unwanted([]byte(read(t, name)), info.Mode()&0o111 != 0); why != "" {
			t.Errorf("%s %s", name, why)
		}
	}
}

func TestUnwanted(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		text       []byte
		executable bool
		wrong      bool
	}{
		"a program":                  {text: self, executable: true, wrong: true},
		"a program without its bit":  {text: self[:1000], wrong: true},
		"text with the bit":          {text: []byte("hello\n"), executable: true, wrong: true},
		"a large file":               {text: make([]byte, maxFile+1), wrong: true},
		"a script":                   {text: []byte("#!/bin/sh\n"), executable: true},
		"a file at the limit":        {text: make([]byte, maxFile)},
		"a text that names a format": {text: []byte("ELF, MZ and !<arch> are formats\n")},
	} {
		if why := unwanted(test.text, test.executable); (why != "") != test.wrong {
			t.Errorf("%s: %q", name, why)
		}
	}
}
