// Package allotment finds out which batch job a process belongs to and what that job was given: from its ancestors, its
// control groups, its groups and files of the batch system that no user can write. It never looks at an environment,
// and changes nothing.
package allotment
