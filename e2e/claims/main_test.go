package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/cli"
)

// TestClaims: what the documents state is so.
func TestClaims(t *testing.T) {
	f, problems, err := compare("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	if f.Commands < 900 || f.Names < 1500 || f.Keys < 150 || f.Values < 25 || f.Examples < 4 {
		t.Errorf("few statements were found: %+v", f)
	}
}

func TestWrongCommandsAreFound(t *testing.T) {
	tree := cli.New(io.Discard)
	for text, want := range map[string]string{
		"`grange vm list --json`":                                             "",
		"`grange vm suspend`":                                                 `no command "suspend"`,
		"`grange tune audit --ruel x`":                                        "no flag --ruel",
		"`grange exec --network user -- ls --foo`":                            "",
		"`grange exec ls --foo`":                                              "",
		"`grange exec --cpus many -- ls`":                                     "refuses many",
		"`grange vm NAME` and `grange host …`":                                "",
		"```\n$ sudo grange vm show\n```":                                     "accepts 1 arg",
		"```\n# GRANGE_SERVER=x grange vm list | grange vm lst\n```":          `no command "lst"`,
		"```\n$ grange host fit --cpus 4 \\\n    --memory 4G --pagse 2M\n```": "no flag --pagse",
		"```\ngrange tune: nothing is left to do\n```":                        "",
		"```\n$ /usr/bin/grange agent --check # grange foo\n```":              "",
	} {
		_, problems := checkCommands(tree, parse("x.md", text))
		if len(problems) == 0 && want != "" || len(problems) > 0 && (want == "" ||
			!strings.Contains(problems[0].text, want)) {
			t.Errorf("%s: %v, want %q", text, problems, want)
		}
	}
}

func TestWrongNamesAreFound(t *testing.T) {
	c, err := readCode("../..")
	if err != nil {
		t.Fatal(err)
	}
	all, err := kinds("../..", cli.New(io.Discard), c)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{
		"--json": 0, "--jsno": 1, "--no-vm": 0,
		"make test": 0, "make tset": 1,
		"grange_agent_ready": 0, "grange_server_answer_seconds_bucket": 0, "grange_cows": 1,
		"GrangeDown": 0, "GrangeUpsideDown": 1,
		"TestCows": 1, "TestTuner": 0,
		"internal/cli": 0, "internal/clay": 1,
		"GET /v1/vms/VM/move": 0, "GET /v1/workers?follow=true": 0, "PUT /v1/workers": 1, "GET /v1/cows": 1,
		"no-agent": 0, "no-agnet": 1,
	} {
		found := 0
		for _, k := range all {
			_, problems := k.check(parse("x.md", "`"+name+"`"))
			found += len(problems)
		}
		if found != want {
			t.Errorf("%s: %d problems, want %d", name, found, want)
		}
	}
}

func TestWrongKeysAreFound(t *testing.T) {
	known := map[string]bool{"cpus": true}
	_, problems := checkKeys(known, parse("x.md", "```toml\n[a]\ncpus = 1\n# cpsu = 2\n```\n"))
	if len(problems) != 1 || problems[0].line != 4 || !strings.Contains(problems[0].text, "cpsu") {
		t.Errorf("%v", problems)
	}
}

func TestWrongExamplesAreFound(t *testing.T) {
	const printed = "one host\n\nFAULT  ept-off  of 7 rules\nthe end\n"
	for example, wrong := range map[string]bool{
		"one host\nFAULT  ept-off  of 7 rules": false,
		"FAULT … rules\n…\nthe end":            false,
		"FAULT  ept-off  of 8 rules":           true,
		"the end\none host":                    true,
		"FAULT  ept":                           true,
	} {
		if text := differs(strings.Split(example, "\n"), printed); (text != "") != wrong {
			t.Errorf("%q: %q", example, text)
		}
	}
	bad := "```\n$ H=internal/tuning/testdata/hosts/cern-2015-before.txtar\n$ grange tune audit --from $H\nwell tuned\n```\n"
	n, problems, err := checkExamples("../..", parse("x.md", bad))
	if n != 1 || len(problems) != 1 || err != nil {
		t.Errorf("%d run, %v, %v", n, problems, err)
	}
}

func TestWrongStatementsAreFound(t *testing.T) {
	s := statement{"x.md", "waits (default VALUE) for", 90 * time.Second}
	for text, want := range map[string]string{
		"it waits (default 90 seconds) for you":  "",
		"it waits\n(default 90 seconds) for you": "",
		"it waits (default 30 seconds) for you":  "the page says 30 seconds, the program 90 seconds",
		"it waits (default 90) for you":          "the page says 90, the program 90 seconds",
		"it waits":                               "no sentence",
	} {
		if got := s.check(text); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: %s", text, got)
		}
	}
}
