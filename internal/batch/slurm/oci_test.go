package slurm

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

func TestReadContainer(t *testing.T) {
	c, err := ReadContainer("testdata/oci")
	if err != nil || c.Image != "el9" || c.Shape != "large" ||
		!slices.Equal(c.Args, []string{"/var/spool/slurmd/job00002/slurm_script", "a b"}) || len(c.Env) != 6 {
		t.Fatalf("%+v %v", c, err)
	}
	env := c.Environment(Word{Restarts: 2}, "0",
		func(key string) string { return map[string]string{"SLURMD_NODENAME": "n1"}[key] })
	for _, kv := range []string{"SLURM_RESTART_COUNT=2", "SLURM_CPUS_ON_NODE=4", "SLURM_PROCID=0", "SLURMD_NODENAME=n1",
		"ODD=u ü\n=x"} {
		if !slices.Contains(env, kv) {
			t.Errorf("no %q in %q", kv, env)
		}
	}
	if env := (Container{Env: []string{"SLURM_PROCID=7", "SLURM_NNODES=3"}}).Environment(Word{}, "1",
		os.Getenv); !slices.Contains(env, "SLURM_PROCID=7") || slices.Contains(env, "SLURM_NODEID=0") {
		t.Errorf("%q", env)
	}
}

// TestHostileBundles: a bundle is its user's. Whatever is in it, nothing runs, or what its user could have asked for
// anyway.
func TestHostileBundles(t *testing.T) {
	const head = `{"annotations":{"org.grange.image":"el9"},"process":{"args":`
	for name, text := range map[string]string{
		"empty":                "",
		"no object":            "[1]",
		"no annotation":        `{"process":{"args":["x"]}}`,
		"another's bundle":     `{"annotations":{"io.podman":"x"},"process":{"args":["x"]}}`,
		"no command":           head + `[]}}`,
		"an option for image":  strings.Replace(head, "el9", "--socket", 1) + `["x"]}}`,
		"a path for image":     strings.Replace(head, "el9", "../../etc", 1) + `["x"]}}`,
		"a long image":         strings.Replace(head, "el9", strings.Repeat("a", 300), 1) + `["x"]}}`,
		"a shape for a number": `{"annotations":{"org.grange.image":"el9","org.grange.shape":7},"process":{"args":["x"]}}`,
		"a script nowhere":     head + `["/tmp/slurm/startup"]}}`,
		"a relative script": head +
			`["/tmp/slurm/startup"]},"mounts":[{"destination":"/tmp/slurm/startup","source":"../x"}]}`,
		"a circle": head +
			`["/tmp/slurm/startup"]},"mounts":[{"destination":"/tmp/slurm/startup","source":"/tmp/slurm/startup"}]}`,
		"deep": strings.Repeat("[", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			refused(t, dir)
		})
	}
	t.Run("no file", func(t *testing.T) { refused(t, t.TempDir()) })
	t.Run("a pipe", func(t *testing.T) {
		dir := t.TempDir()
		if err := syscall.Mkfifo(filepath.Join(dir, "config.json"), 0o644); err != nil {
			t.Fatal(err)
		}
		refused(t, dir) // and does not wait for a writer
	})
	t.Run("without end", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "config.json"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, "config.json"), 1<<40); err != nil {
			t.Fatal(err)
		}
		refused(t, dir)
	})
}

func refused(t *testing.T, dir string) {
	t.Helper()
	c, err := ReadContainer(dir)
	if e := (*farm.Error)(nil); !errors.As(err, &e) || e.Code != farm.CodeBadBundle {
		t.Errorf("%+v %v", c, err)
	}
}

func TestBundle(t *testing.T) {
	for _, bad := range [][2]string{{"", ""}, {"a b", ""}, {"el9:large", ""}, {"el9", "--x"}, {"-x", ""}} {
		if text, err := Bundle(bad[0], bad[1]); err == nil {
			t.Errorf("%q: %s", bad, text)
		}
	}
	for image, want := range map[string]string{"el9": "el9", "sha256:00ff": "sha256:00ff", "@policy": ""} {
		text, err := Bundle(image, "large")
		if err != nil {
			t.Fatal(err)
		}
		if c, err := parseContainer(text); err != nil || c.Image != want || c.Shape != "large" {
			t.Errorf("%+v %v", c, err)
		}
	}
}

// TestReadWord: the job's number is all of a path that a caller has the choice of.
func TestReadWord(t *testing.T) {
	if w, err := ReadWord("testdata", "../oci/config.json"); err == nil {
		t.Errorf("%+v", w)
	}
}
