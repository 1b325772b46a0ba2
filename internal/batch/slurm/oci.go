package slurm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/grange-project/grange/internal/farm"
)

// Annotations of a bundle: what --container=BUNDLE means.
const (
	imageAnnotation = "org.grange.image" // an image's name, or byPolicy
	shapeAnnotation = "org.grange.shape"
)

// byPolicy in the place of an image: the agent's policy has the word.
const byPolicy = "@policy"

// startup is where Slurm says that a batch script is in its container; a mount says where it really is.
const startup = "/tmp/slurm/startup"

// maxContainer bounds a bundle's config.json. A job's whole environment is in it, and its arguments; the kernel takes
// some 6 MB of both.
const maxContainer = 16 << 20

// Container is what Slurm hands over for one task, in a copy of the bundle's config.json that it writes anew for each.
// The bundle is its user's: nothing here gives more than the same user could ask for otherwise.
type Container struct {
	Image, Shape string // "": as the agent is configured
	Args         []string
	Env          []string
}

// config is as much of an OCI bundle's config.json as Slurm and we look at.
type config struct {
	OCIVersion  string            `json:"ociVersion"`
	Process     *process          `json:"process,omitempty"`
	Root        root              `json:"root"`
	Mounts      []mount           `json:"mounts,omitempty"`
	Annotations map[string]string `json:"annotations"`
}

type process struct {
	Args []string `json:"args"`
	Cwd  string   `json:"cwd"`
	Env  []string `json:"env"`
}

type root struct {
	Path string `json:"path"`
}

type mount struct {
	Destination string `json:"destination"`
	Source      string `json:"source"`
}

// Bundle is the config.json of a bundle that stands for an image. root is there because Slurm wants one; nothing is in
// it.
func Bundle(image, shape string) ([]byte, error) {
	if !named(image, shape) {
		return nil, &farm.Error{Kind: farm.Invalid, Code: farm.CodeUsage,
			Message: fmt.Sprintf("image %q, shape %q: names were wanted", image, shape),
			Hint: "names of letters, digits and . _ -, as grange image list and the agent's [shapes] have them; or " +
				"the image " + byPolicy}
	}
	c := config{OCIVersion: "1.0.0", Root: root{Path: "rootfs"}, Annotations: map[string]string{imageAnnotation: image},
		Process: &process{Args: []string{"/bin/true"}, Cwd: "/", Env: []string{}}}
	if shape != "" {
		c.Annotations[shapeAnnotation] = shape
	}
	text, err := json.MarshalIndent(c, "", "  ")
	return append(text, '\n'), err
}

// named reports whether a text names an image and a shape, which may be none.
func named(image, shape string) bool {
	const most = 255
	name := regexp.MustCompile(`^[A-Za-z0-9._][A-Za-z0-9._-]*$`)
	return len(image) <= most && len(shape) <= most &&
		(image == byPolicy || name.MatchString(strings.TrimPrefix(image, "sha256:"))) &&
		(shape == "" || name.MatchString(shape))
}

// ReadContainer reads what Slurm wrote for a task.
func ReadContainer(dir string) (Container, error) {
	path := filepath.Join(dir, "config.json")
	// not to wait for whoever writes into a pipe of that name
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Container{}, badBundle(path, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return Container{}, badBundle(path+" is not a file", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxContainer+1))
	if err != nil {
		return Container{}, badBundle(path, err)
	}
	if len(text) > maxContainer {
		return Container{}, badBundle(fmt.Sprintf("%s has more than %v", path, farm.Bytes(maxContainer)), nil)
	}
	return parseContainer(text)
}

func parseContainer(text []byte) (Container, error) {
	var c config
	if err := json.Unmarshal(bytes.ToValidUTF8(text, []byte("\uFFFD")), &c); err != nil {
		return Container{}, badBundle("config.json of the job's container", err)
	}
	image, ours := c.Annotations[imageAnnotation]
	switch {
	case !ours:
		return Container{}, badBundle("the bundle of --container names no image in its annotation "+imageAnnotation,
			nil)
	case c.Process == nil || len(c.Process.Args) == 0:
		return Container{}, badBundle("config.json of the job's container has no command", nil)
	}
	out := Container{Image: image, Shape: c.Annotations[shapeAnnotation], Args: c.Process.Args, Env: c.Process.Env}
	if !named(image, out.Shape) {
		return Container{}, badBundle(
			fmt.Sprintf("the bundle's annotations name %q and %q: an image and a shape were wanted", image, out.Shape),
			nil)
	}
	if image == byPolicy {
		out.Image = ""
	}
	if out.Args[0] == startup {
		for _, m := range c.Mounts { // Slurm's own is the last one
			if m.Destination == startup {
				out.Args[0] = m.Source
			}
		}
		if !filepath.IsAbs(out.Args[0]) || out.Args[0] == startup {
			return Container{}, badBundle("config.json of the job's container does not say where the job's script is",
				nil)
		}
	}
	return out, nil
}

func badBundle(what string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		what = "no " + what
	}
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadBundle, Message: what, Err: err,
		Hint: "--container names a directory that `grange slurm oci bundle IMAGE --dir DIR` wrote"}
}

// Word is what our prolog left for a job: what Slurm 22.05 does not tell a container.
type Word struct {
	Restarts int    // how often the job was queued again
	Dir      string // its working directory
}

// ReadWord reads it; root alone can have written there.
func ReadWord(dir, job string) (Word, error) {
	if _, err := strconv.ParseUint(job, 10, 32); err != nil {
		return Word{}, badBundle(fmt.Sprintf("%q is not a Slurm job", job), nil)
	}
	text, err := os.ReadFile(filepath.Join(dir, job))
	if err != nil {
		return Word{}, &farm.Error{Kind: farm.Unavailable, Code: farm.CodeNoOCI,
			Message: "grange's prolog left no word of job " + job + " on this host", Err: err,
			Hint: "grange slurm check says what is wrong with Prolog in slurm.conf"}
	}
	count, rest, _ := strings.Cut(string(text), "\n")
	restarts, err := strconv.Atoi(count)
	if err != nil {
		restarts = 0 // a Slurm that does not count
	}
	return Word{Restarts: restarts, Dir: strings.TrimSuffix(rest, "\n")}, nil
}

// Words is where the prolog leaves word for jobs.
const Words = "/run/grange/slurm-jobs"

// Environment is the job's own, with what Slurm 22.05 writes into the environment of tasks on the host only. getenv is
// slurmstepd's own.
func (c Container) Environment(w Word, task string, getenv func(string) string) []string {
	env := c.Env
	values := map[string]string{}
	for _, kv := range env {
		key, value, _ := strings.Cut(kv, "=")
		values[key] = value
	}
	add := func(key, value string) {
		if _, there := values[key]; !there && value != "" {
			env = append(env, key+"="+value)
		}
	}
	if w.Restarts > 0 {
		add("SLURM_RESTART_COUNT", strconv.Itoa(w.Restarts))
	}
	add("SLURMD_NODENAME", getenv("SLURMD_NODENAME"))
	add("SLURM_LOCALID", task)
	add("SLURM_TASK_PID", strconv.Itoa(os.Getpid()))
	if _, err := strconv.Atoi(values["SLURM_JOB_CPUS_PER_NODE"]); err == nil {
		add("SLURM_CPUS_ON_NODE", values["SLURM_JOB_CPUS_PER_NODE"])
	}
	if values["SLURM_NNODES"] == "1" { // else nobody says which of them this is
		add("SLURM_PROCID", task)
		add("SLURM_NODEID", "0")
		add("SLURM_GTIDS", task)
	}
	return env
}
