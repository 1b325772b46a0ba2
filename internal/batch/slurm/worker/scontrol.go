package worker

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
	"github.com/grange-project/grange/internal/program"
)

// Scontrol asks and tells slurmctld, by Slurm's own command: its output is the same from 20.11 to 25.11, which no API
// of Slurm's is.
type Scontrol struct {
	Path string // of scontrol; squeue lies beside it
	Conf string // slurm.conf; "": Slurm's own default
}

// callTimeout bounds one call. slurmctld may be busy; it never takes this long and lives.
const callTimeout = 20 * time.Second

func (s Scontrol) run(ctx context.Context, path string, args ...string) (string, error) {
	c := program.Call{Path: path, Args: args, Limit: callTimeout}
	if s.Conf != "" {
		c.Env = []string{"SLURM_CONF=" + s.Conf}
	}
	out, err := program.Start(ctx, c)
	if err != nil {
		return "", &farm.Error{Kind: farm.Unavailable, Code: CodeSlurm,
			Message: strings.Join(append([]string{path}, args...), " "), Hint: "try the command by hand", Err: err}
	}
	return string(out), nil
}

// Node is a node as slurmctld sees it.
type Node struct {
	Name  string
	State string   // the first word of its state: IDLE, ALLOCATED, DOWN
	Flags []string // the others: CLOUD, POWERED_DOWN, DRAIN
	// Reason is why somebody took it out of use.
	Reason string
}

// Is reports whether the node's state has any of these words.
func (n Node) Is(words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return w == n.State || slices.Contains(n.Flags, w) })
}

// Off reports whether Slurm thinks that the node has no machine, or shall have none.
func (n Node) Off() bool {
	return n.Is("POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN") && !n.Is("POWERING_UP")
}

// Registered reports whether the node's daemon has come and can be given jobs.
func (n Node) Registered() bool {
	return !n.Off() && !n.Is("POWERING_UP", "POWER_UP", "NOT_RESPONDING", "DOWN", "FUTURE", "UNKNOWN", "REBOOT_ISSUED")
}

var (
	nodeNameField  = lazyregexp.New(`(?:^|\s)NodeName=(\S+)`)
	nodeStateField = lazyregexp.New(`\sState=(\S+)`)
	// The last field but for what follows who said it, and when.
	nodeReasonField = lazyregexp.New(`\sReason=(.*) \[[^\]]*@[^\]]*\]`)
)

// stateMarks are what Slurm puts behind a state for people; each of them is a word of its own as well, but for the
// first.
var stateMarks = strings.NewReplacer("*", "", "~", "", "#", "", "%", "", "@", "", "$", "", "^", "", "!", "", "-", "")

// Nodes asks for the nodes of a host list; "" asks for all. Nodes that Slurm does not know are left out when others are
// asked for, too.
func (s Scontrol) Nodes(ctx context.Context, list string) ([]Node, error) {
	args := []string{"-o", "show", "node"}
	if list != "" {
		args = append(args, list)
	}
	out, err := s.run(ctx, s.Path, args...)
	if err != nil {
		return nil, err
	}
	return parseNodes(out), nil
}

func parseNodes(text string) []Node {
	var nodes []Node
	for line := range strings.Lines(text) {
		name, state := nodeNameField.FindStringSubmatch(line), nodeStateField.FindStringSubmatch(line)
		if name == nil || state == nil {
			continue
		}
		words := strings.Split(stateMarks.Replace(state[1]), "+")
		n := Node{Name: name[1], State: words[0], Flags: words[1:]}
		if strings.Contains(state[1], "*") {
			n.Flags = append(n.Flags, "NOT_RESPONDING")
		}
		if reason := nodeReasonField.FindStringSubmatch(line); reason != nil {
			n.Reason = reason[1]
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// SetNode changes the state of the nodes of a host list. Slurm wants a reason for most states.
func (s Scontrol) SetNode(ctx context.Context, list, state, reason string) error {
	_, err := s.run(ctx, s.Path, "update", "nodename="+list, "state="+state, "reason="+reason)
	return err
}

// DeleteNode makes Slurm forget a dynamic node. It refuses as long as a job holds the node.
func (s Scontrol) DeleteNode(ctx context.Context, name string) error {
	_, err := s.run(ctx, s.Path, "delete", "nodename="+name)
	return err
}

// Job is a job as slurmctld sees it.
type Job struct {
	State     string
	Reason    string // why it waits
	Restarts  int
	Features  string
	Partition string
}

// ShowJob asks for one job.
func (s Scontrol) ShowJob(ctx context.Context, id string) (Job, error) {
	out, err := s.run(ctx, s.Path, "-o", "show", "job", id)
	if err != nil {
		return Job{}, err
	}
	return parseJob(out), nil
}

func parseJob(text string) Job {
	var j Job
	for field := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(field, "=")
		if value == "(null)" {
			value = ""
		}
		switch {
		case key == "JobState" && j.State == "":
			j.State = value
		case key == "Reason" && j.Reason == "":
			j.Reason = value
		case key == "Restarts":
			j.Restarts, _ = strconv.Atoi(value)
		case key == "Features" && j.Features == "":
			j.Features = value
		case key == "Partition" && j.Partition == "":
			j.Partition = value
		case key == "Command": // a path of the user's, and behind it others: nothing of ours
			return j
		}
	}
	return j
}

// StartNow lets a pending job be looked at by the next round of the scheduler. A requeued job would wait for two
// minutes.
func (s Scontrol) StartNow(ctx context.Context, job string) error {
	_, err := s.run(ctx, s.Path, "update", "jobid="+job, "StartTime=now")
	return err
}

var jobID = lazyregexp.New(`^[0-9]+$`)

// JobsOn are the jobs that hold a node.
func (s Scontrol) JobsOn(ctx context.Context, node string) ([]string, error) {
	out, err := s.run(ctx, strings.TrimSuffix(s.Path, "scontrol")+"squeue", "-h", "-o", "%A", "-t",
		"R,CF,CG,S,SO", "-w", node)
	if err != nil {
		return nil, err
	}
	var jobs []string
	for word := range strings.FieldsSeq(out) {
		if !jobID.MatchString(word) {
			return nil, fmt.Errorf("squeue names a job %q", word)
		}
		if !slices.Contains(jobs, word) {
			jobs = append(jobs, word)
		}
	}
	return jobs, nil
}
