package farm

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// FleetImage is the content of an image in the catalogue of the fleet, whatever its names are.
type FleetImage struct {
	Digest      string // "sha256:" and 64 hex digits
	Kind        string // disk, kernel or root
	Format      string
	Size        Bytes // of all files
	VirtualSize Bytes // of a disk: what the guest sees
	// Manifest is image.json: the files with their checksums, and all else that the digest stands for.
	Manifest []byte
	Servers  []string // URLs of the servers that have the files

	Note, OS   string
	MinDisk    Bytes             // root and scratch together
	MinMemory  Bytes             // of a VM
	Properties map[string]string // OpenStack's names: hw_cpu_sockets
	Projects   []string          // whose VMs may be made of it; none: all

	State             ImageState
	Successor, Reason string
	Source            string // that it was fetched from; "": it was uploaded
	Verdict           string // what vouches for the content: a signature, a checksum, nothing
	By                string // who put it there
	Created           time.Time
	// Removed is set when the files are gone: nothing starts any more, and hosts remove their copies.
	Removed  bool
	Revision int64
}

// ImageState is what may be done with an image.
type ImageState string

// The states of an image.
const (
	ImageActive     ImageState = "active"
	ImageDeprecated ImageState = "deprecated" // starts, with a warning
	ImageWithdrawn  ImageState = "withdrawn"  // starts nothing
)

// ImageName is a name in the catalogue, and what it has meant.
type ImageName struct {
	Name     string
	Digest   string
	Versions []ImageVersion // the latest last
	Revision int64
}

// ImageVersion is an image that a name has meant.
type ImageVersion struct {
	Digest string
	Since  time.Time
	By     string // who moved the name
}

// mostImageVersions bounds what is kept of a name.
const mostImageVersions = 200

// Move has the name mean another image. It reports whether that is news.
func (n *ImageName) Move(digest, by string, now time.Time) bool {
	if n.Digest == digest {
		return false
	}
	n.Digest = digest
	n.Versions = append(n.Versions, ImageVersion{digest, now, by})
	n.Versions = n.Versions[max(0, len(n.Versions)-mostImageVersions):]
	return true
}

// ImageOrder is something that hosts are to do with images: some at a time.
type ImageOrder struct {
	ID      string
	Op      ImageOp
	What    string // the name or the pattern that was said
	AtOnce  int    // hosts that work on it at a time
	By      string
	Created time.Time
	Ended   time.Time // zero: hosts are still at it
}

// ImageOp is what a host is to do with images.
type ImageOp string

// What hosts do with images.
const (
	ImageFetch ImageOp = "fetch"
	ImageDrop  ImageOp = "drop" // but for those that a VM uses
)

// ImageTask is the part of one host in an order.
type ImageTask struct {
	Order, Host string // by ID
	Op          ImageOp
	Name        string // of a fetch
	Digests     []string
	State       TaskState
	Reason      string // of a failure
	Done, Total Bytes
	Began       time.Time // that it was given to the host
}

// TaskState is how a task is.
type TaskState string

// The states of a task.
const (
	TaskWaiting TaskState = "waiting" // for its turn
	TaskActive  TaskState = "active"
	TaskDone    TaskState = "done"
	TaskFailed  TaskState = "failed"
)

// Over reports whether nothing more comes of the task.
func (s TaskState) Over() bool { return s == TaskDone || s == TaskFailed }

// ImageUse is what a host says of an image: what runs of it beside VMs that the server knows, how far a transfer is.
type ImageUse struct {
	Digest      string
	Jobs        int    // VMs of jobs
	Done, Total Bytes  // of a transfer under way
	Order       string // that failed, and
	Reason      string // why
}

// CodeWithdrawn is the error of an image that nothing may start from any more.
const CodeWithdrawn Code = "image-withdrawn"

// Refused is the error of a VM from an image in this state, called so by people; nil if it may start.
func (i FleetImage) Refused(called string) error {
	if i.State != ImageWithdrawn {
		return nil
	}
	e := &Error{Kind: Conflict, Code: CodeWithdrawn, Message: fmt.Sprintf("image %.80s is withdrawn", called),
		Hint: "use another image: `grange image list`"}
	if i.Reason != "" {
		e.Message += ": " + i.Reason
	}
	if i.Successor != "" {
		e.Hint = "use " + i.Successor
	}
	return e
}

// IsDigest reports whether a reference is the whole digest of an image.
func IsDigest(ref string) bool {
	hex, ok := strings.CutPrefix(ref, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

// Nearest are the names that somebody may have meant by name, the most likely first: three at most.
func Nearest(name string, names []string) []string {
	far := map[string]int{}
	var near []string
	for _, n := range names {
		d := distance(name, n)
		if strings.HasPrefix(n, name) || strings.Contains(n, name) && len(name) > 2 {
			d = min(d, 1)
		}
		if d <= max(1, len(name)/3) {
			far[n], near = d, append(near, n)
		}
	}
	slices.SortStableFunc(near, func(a, b string) int { return far[a] - far[b] })
	return near[:min(len(near), 3)]
}

// distance is how many letters of a must be added, removed or replaced to make b of it (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := min(row[j+1], row[j]) + 1
			if a[i] == b[j] {
				next = min(next, diagonal)
			} else {
				next = min(next, diagonal+1)
			}
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}

// NoImageNamed is the error of a name that is not there, with those that may be meant.
func NoImageNamed(ref string, names []string) error {
	e := &Error{Kind: NotFound, Code: CodeNoImage, Message: fmt.Sprintf("there is no image %q", ref),
		Hint: "see `grange image list`"}
	if near := Nearest(ref, names); len(near) > 0 {
		e.Hint = "did you mean " + strings.Join(near, " or ") + "? see `grange image list`"
	}
	return e
}
