package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// spdx is a document of SPDX 2.3 in JSON.
type spdx struct {
	SPDXVersion       string         `json:"spdxVersion"`
	DataLicense       string         `json:"dataLicense"`
	SPDXID            string         `json:"SPDXID"`
	Name              string         `json:"name"`
	DocumentNamespace string         `json:"documentNamespace"`
	CreationInfo      creation       `json:"creationInfo"`
	Packages          []spdxPackage  `json:"packages"`
	Relationships     []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	SPDXID                string        `json:"SPDXID"`
	Name                  string        `json:"name"`
	VersionInfo           string        `json:"versionInfo,omitempty"`
	DownloadLocation      string        `json:"downloadLocation"`
	FilesAnalyzed         bool          `json:"filesAnalyzed"`
	LicenseConcluded      string        `json:"licenseConcluded"`
	LicenseDeclared       string        `json:"licenseDeclared"`
	CopyrightText         string        `json:"copyrightText"`
	PrimaryPackagePurpose string        `json:"primaryPackagePurpose,omitempty"`
	Checksums             []checksum    `json:"checksums,omitempty"`
	ExternalRefs          []externalRef `json:"externalRefs,omitempty"`
	Comment               string        `json:"comment,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type externalRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const (
	documentID   = "SPDXRef-DOCUMENT"
	noAssertion  = "NOASSERTION"
	ownLicense   = "Apache-2.0"
	projectURL   = "https://github.com/grange-project/grange"
	spdxSuffix   = ".spdx.json"
	goRepository = "https://go.dev/dl/"
)

// modules are what a program consists of beside its own module: modules as they were built, and Go's library.
func modules(info *buildinfo.BuildInfo) []debug.Module {
	list := []debug.Module{{Path: "std", Version: info.GoVersion}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		list = append(list, *m)
	}
	return list
}

var notInID = regexp.MustCompile(`[^a-zA-Z0-9.]+`)

// describe makes the document of a program. The same program at the same time, which is the commit's, gives the same
// document.
func describe(info *buildinfo.BuildInfo, name, version string, program []byte, created time.Time) spdx {
	sum := sha256.Sum256(program)
	digest := hex.EncodeToString(sum[:])
	own := spdxPackage{SPDXID: "SPDXRef-" + name, Name: name, VersionInfo: version, DownloadLocation: projectURL,
		LicenseConcluded: ownLicense, LicenseDeclared: ownLicense, CopyrightText: "2026 the grange developers",
		PrimaryPackagePurpose: "APPLICATION", Checksums: []checksum{{"SHA256", digest}},
		Comment: "main module " + info.Main.Path}
	d := spdx{SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: documentID, Name: name + " " + version,
		DocumentNamespace: projectURL + "/spdx/" + name + "-" + digest,
		CreationInfo: creation{created.UTC().Format(time.RFC3339),
			[]string{"Organization: grange developers", "Tool: grange-sbom"}}, Packages: []spdxPackage{own},
		Relationships: []relationship{{documentID, "DESCRIBES", own.SPDXID}}}
	for _, m := range modules(info) {
		p := spdxPackage{SPDXID: "SPDXRef-module-" + notInID.ReplaceAllString(m.Path, "-"), Name: m.Path,
			VersionInfo: m.Version, DownloadLocation: "https://proxy.golang.org/" + m.Path + "/@v/" + m.Version +
				".zip", LicenseConcluded: noAssertion, LicenseDeclared: noAssertion, CopyrightText: noAssertion,
			PrimaryPackagePurpose: "LIBRARY",
			ExternalRefs:          []externalRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.Path + "@" + m.Version}}}
		if m.Path == "std" {
			p.DownloadLocation, p.LicenseDeclared = goRepository, "BSD-3-Clause"
		}
		if m.Sum != "" {
			p.Comment = "go.sum " + m.Sum
		}
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, relationship{own.SPDXID, "STATIC_LINK", p.SPDXID})
	}
	return d
}

// writeSPDX writes the document of a program.
func writeSPDX(program, name, version, list string, created time.Time) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(describe(info, name, version, content, created), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(list, append(text, '\n'), 0o644)
}

var (
	spdxID    = regexp.MustCompile(`^SPDXRef-[a-zA-Z0-9.-]+$`)
	namespace = regexp.MustCompile(`^https://[^#\s]+$`)
	creator   = regexp.MustCompile(`^(Person|Organization|Tool): \S`)
)

// checkSPDX holds a document to SPDX 2.3, and to what Go's linker wrote into the program.
func checkSPDX(info *buildinfo.BuildInfo, program []byte, d spdx) error {
	wrong := checkForm(d)
	if len(d.Packages) == 0 {
		return errors.Join(append(wrong, errors.New("no package"))...)
	}
	sum := sha256.Sum256(program)
	if p := d.Packages[0]; len(p.Checksums) != 1 || p.Checksums[0] != (checksum{"SHA256", hex.EncodeToString(sum[:])}) {
		wrong = append(wrong, fmt.Errorf("%s is not of this program: %v", p.Name, p.Checksums))
	}
	want := map[string]string{}
	for _, m := range modules(info) {
		want[m.Path] = m.Version
	}
	for _, p := range d.Packages[1:] {
		if version, ok := want[p.Name]; !ok || version != p.VersionInfo {
			wrong = append(wrong, fmt.Errorf("%s %s is not in the program", p.Name, p.VersionInfo))
		}
		delete(want, p.Name)
	}
	for name, version := range want {
		wrong = append(wrong, fmt.Errorf("%s %s is missing", name, version))
	}
	return errors.Join(wrong...)
}

// checkForm looks at what the specification asks of any document.
func checkForm(d spdx) (wrong []error) {
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if d.SPDXVersion != "SPDX-2.3" || d.DataLicense != "CC0-1.0" || d.SPDXID != documentID || d.Name == "" {
		add("the head is %s, %s, %s, %q", d.SPDXVersion, d.DataLicense, d.SPDXID, d.Name)
	}
	if !namespace.MatchString(d.DocumentNamespace) {
		add("namespace %q", d.DocumentNamespace)
	}
	if _, err := time.Parse("2006-01-02T15:04:05Z", d.CreationInfo.Created); err != nil {
		add("created: %w", err)
	}
	if len(d.CreationInfo.Creators) == 0 ||
		slices.ContainsFunc(d.CreationInfo.Creators, func(c string) bool { return !creator.MatchString(c) }) {
		add("creators %q", d.CreationInfo.Creators)
	}
	ids := map[string]bool{documentID: true}
	for _, p := range d.Packages {
		if !spdxID.MatchString(p.SPDXID) || ids[p.SPDXID] {
			add("%s has no ID of its own: %q", p.Name, p.SPDXID)
		}
		ids[p.SPDXID] = true
		if p.Name == "" || p.DownloadLocation == "" || p.LicenseDeclared == "" || p.FilesAnalyzed {
			add("package %+v", p)
		}
		for _, r := range p.ExternalRefs {
			if r.Category != "PACKAGE-MANAGER" || r.Type != "purl" || !strings.HasPrefix(r.Locator, "pkg:golang/") {
				add("%s: reference %v", p.Name, r)
			}
		}
	}
	related := map[string]bool{}
	for _, r := range d.Relationships {
		if !ids[r.Element] || !ids[r.Related] {
			add("%s %s %s: no such element", r.Element, r.Type, r.Related)
		}
		related[r.Related] = true
	}
	for _, p := range d.Packages {
		if !related[p.SPDXID] {
			add("%s is related to nothing", p.Name)
		}
	}
	return wrong
}
