#compdef actmem actmem-bench
# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
#
# Completes the command lines of actmem and actmem-bench in zsh. The subcommands, the options and
# the kinds of their values are read from --help, which lists those of the installed version.

# Completes a value of the kind that --help shows: alternatives such as a|DIR; a list such as a,b,
# whose words are separated by commas; or COLUMNS, a list of the names in a section of --help. The
# arguments are options of compadd and, last, the kind.
_actmem_value() {
	local kind=$argv[-1] each
	local -a words
	local -i ret=1
	shift -p

	for each in ${(s:|:)kind}; do
		case $each in
		COLUMNS) words+=($columns); kind=, ;;
		[a-z0-9]*) words+=(${(s:,:)each}) ;;
		USER) _users "$@" && ret=0 ;;
		PID) _pids "$@" && ret=0 ;;
		DIR) compset -P '*:'; _path_files "$@" -/ && ret=0 ;;
		FILE* | PATH) _files "$@" && ret=0 ;;
		esac
	done
	if [[ $kind == *,* ]]; then
		_sequence compadd "$@" - $words && ret=0
	elif (( $#words )); then
		compadd "$@" -a words && ret=0
	fi
	return ret
}

# Completes the command line of the program that `actmem run` executes. Skips the -- that _arguments
# leaves in front of it.
_actmem_program() {
	[[ $words[1] != -- ]] || { shift words; (( CURRENT-- )) }
	_normal
}

_actmem_subcommand() {
	local line
	local -a specs columns match mbegin mend
	local section usage told dashes action

	for line in ${(f)"$(_call_program options $command $words[1] --help 2>/dev/null)"}; do
		if [[ $line =~ '^  (-([A-Za-z]), |    )?(--[a-z-]+)((\[?)[ =]([^ ]+))?( +(.*))?$' ]]; then
			told="[${${match[8]//\[/\\[}//\]/\\]}]"
			action=
			if [[ -n $match[4] ]]; then
				action=":${match[6]//:/\\:}:_actmem_value ${(q)match[6]//:/\\:}"
				[[ -z $match[5] ]] || action=:$action
			fi
			dashes="(${match[2]:+-$match[2] }$match[3])"
			[[ $match[6] != DIR ]] || dashes='*'
			specs+=("$dashes$match[3]${match[4]:+=${match[5]:+-}}$told$action")
			[[ -z $match[2] ]] ||
				specs+=("$dashes-$match[2]${match[4]:+${${match[5]:+-}:-+}}$told$action")
		elif [[ $line == Usage:* ]]; then
			usage=$line
		elif [[ $line =~ '^([A-Z]+):$' ]]; then
			section=$match[1]
		elif [[ $section == COLUMNS && $line =~ '^  ([a-z]+)( |$)' ]]; then
			columns+=($match[1])
		fi
	done
	case $usage in
	*PROGRAM*) _arguments -s -S -A '-*' $specs '(-):program:_command_names -e' \
			'*::argument:_actmem_program' ;;
	*FILE*) _arguments -s -S $specs ':file:_files' ;;
	*) _arguments -s -S $specs ;;
	esac
}

_actmem() {
	local command=$words[1] curcontext=$curcontext state line ret=1
	local -a subcommands match mbegin mend
	local -A opt_args

	_arguments -C '(- *)'{-h,--help}'[print the usage]' \
		'(- *)'{-V,--version}'[print the version]' \
		':subcommand:->subcommand' '*::option:->option' && ret=0
	case $state in
	subcommand)
		for line in ${(f)"$(_call_program subcommands $command --help 2>/dev/null)"}; do
			[[ $line =~ '^  ([a-z]+) +(.*)$' ]] && subcommands+=("$match[1]:$match[2]")
		done
		_describe -t subcommands subcommand subcommands && ret=0 ;;
	option)
		curcontext=${curcontext%:*:*}:actmem-$words[1]:
		_actmem_subcommand && ret=0 ;;
	esac
	return ret
}

_actmem "$@"
