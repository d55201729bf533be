"""Which test triggers which finding, and what a finding has to look like."""

from __future__ import annotations

import re

from relink.system.findings.model import Finding

__all__ = ["PRINTED", "TRIGGERS", "plain_words", "printed", "same_words", "unfinished"]

TRIGGERS: dict[str, str] = {
    "RLK101": "tests/unit/planning/resolve/test_decide.py::test_a_linker_script_under_a_needed_name",
    "RLK102": "tests/unit/planning/resolve/test_decision_findings.py::test_verify_allowed_by_an_honest_plan",
    "RLK103": "tests/unit/planning/resolve/test_decide.py::test_unserved_variants_stay_as_they_are",
    "RLK104": "tests/unit/planning/resolve/test_decide.py::test_no_variant_served_is_an_error",
    "RLK105": "tests/unit/planning/resolve/test_decide.py::test_a_linker_script_under_a_needed_name",
    "RLK106": "tests/unit/planning/resolve/test_decide.py::test_a_linker_script_under_a_needed_name",
    "RLK107": "tests/unit/test_rare_findings.py::test_a_prefix_with_a_part_of_another_c_library",
    "RLK108": "tests/unit/test_rare_findings.py::test_what_python_has_loaded_shadows_the_prefix",
    "RLK109": "tests/unit/planning/resolve/test_proof.py::TestSubstitution::test_a_flag_for_what_nobody_needs",
    "RLK110": "tests/unit/test_rare_findings.py::test_a_library_of_the_system",
    "RLK111": "tests/unit/test_rare_findings.py::test_a_copy_that_no_search_path_avoids",
    "RLK112": "tests/unit/planning/resolve/test_proof.py::TestSubstitution::test_the_flag_is_enough_with_the_symbols",
    "RLK113": "tests/unit/planning/resolve/test_proof.py::TestDropping::test_a_second_missing_library_may_own_the_symbol",
    "RLK114": "tests/unit/planning/resolve/test_proof.py::TestSubstitution::test_one_symbol_lacking_is_refused_and_named",
    "RLK115": "tests/unit/providers/profiles/test_assumed.py::test_a_library_that_only_a_preload_brings_is_told",
    "RLK116": "tests/unit/test_refused_members.py::test_verify[not page-aligned]",
    "RLK117": "tests/unit/planning/resolve/test_decide.py::test_a_filter_library_is_told[-f]",
    "RLK118": "tests/unit/planning/test_siblings.py::test_one_that_is_not_there_is_assumed",
    "RLK119": "tests/unit/planning/test_siblings.py::test_an_installed_one_is_resolved_for_real",
    "RLK120": "tests/unit/planning/resolve/test_proof.py::TestDlopen::test_would_not_be_found",
    "RLK121": "tests/unit/planning/resolve/test_proof.py::TestDlopen::test_preload_makes_it_findable",
    "RLK122": "tests/unit/planning/resolve/test_proof.py::test_the_soname_that_other_members_need",
    "RLK123": "tests/unit/planning/resolve/test_strategy.py::test_a_library_that_one_other_member_is",
    "RLK124": "tests/unit/planning/resolve/test_decide.py::test_what_the_package_does_without_is_left",
    "RLK125": "tests/unit/planning/resolve/test_stubs.py::test_a_stub_has_what_the_wheel_imports",
    "RLK126": "tests/unit/planning/resolve/test_stubs.py::test_data_cannot_be_stubbed",
    "RLK127": "tests/unit/planning/resolve/test_stubs.py::test_verify_tells_when_the_library_has_appeared",
    "RLK128": "tests/unit/planning/test_picks.py::test_a_wheel_whose_variant_is_not_there",
    "RLK132": "tests/unit/planning/resolve/test_stubs.py::test_a_name_in_the_data_is_told_with_what_would_serve",
    "RLK133": "tests/unit/planning/resolve/test_stubs.py::test_it_leads_to_the_library_of_the_same_runtime",
    "RLK134": "tests/unit/planning/resolve/test_stubs.py::test_a_second_runtime_is_refused",
    "RLK130": "tests/unit/planning/resolve/test_proof.py::TestTwice::test_two_majors_by_needed_are_an_error_with_both_chains",
    "RLK131": "tests/unit/planning/resolve/test_proof.py::TestTwice::test_the_same_symbols_in_two_libraries",
    "RLK201": "tests/unit/planning/resolve/test_decide.py::test_unserved_variants_stay_as_they_are",
    "RLK202": "tests/unit/cli/test_relinking.py::test_errors_are_told_and_nothing_is_written",
    "RLK203": "tests/unit/planning/resolve/test_decide.py::test_vendor_empty_and_relative_entries_go",
    "RLK204": "tests/unit/planning/resolve/test_decide.py::test_siblings_stay_unless_the_profile_says_otherwise",
    "RLK205": "tests/unit/planning/resolve/test_decide.py::test_the_second_plan_is_empty",
    "RLK206": "tests/unit/cli/test_relinking.py::test_errors_are_told_and_nothing_is_written",
    "RLK207": "tests/unit/cli/test_relinking.py::test_dry_run",
    "RLK208": "tests/unit/planning/test_assess.py::test_a_program_of_a_wheel_for_any_python",
    "RLK301": "tests/unit/planning/resolve/test_decide.py::test_a_version_that_the_provider_lacks",
    "RLK135": "tests/unit/planning/checks/test_executable_stack.py::test_a_flag_is_cleared",
    "RLK210": "tests/unit/planning/resolve/test_search_kind.py::test_a_shell_that_replaces_a_library",
    "RLK209": "tests/unit/planning/resolve/test_search_kind.py::test_libraries_below_a_runpath_are_flattened",
    "RLK302": "tests/unit/planning/resolve/test_proof.py::TestBinding::test_a_missing_symbol",
    "RLK303": "tests/unit/planning/resolve/test_proof.py::TestBinding::test_assumed",
    "RLK304": "tests/unit/planning/resolve/test_proof.py::TestFlattening::test_a_changed_binding_is_seen",
    "RLK305": "tests/unit/planning/resolve/test_proof.py::TestBinding::test_a_version_record_that_was_left_behind",
    "RLK401": "tests/unit/planning/checks/test_gpu.py::test_another_release_comes_first",
    "RLK402": "tests/unit/planning/checks/test_gpu.py::test_partial_coverage_is_a_warning_with_the_numbers",
    "RLK403": "tests/unit/planning/checks/test_gpu.py::test_code_for_one_setting_of_xnack",
    "RLK404": "tests/unit/planning/checks/test_gpu.py::test_what_cannot_be_read_is_unknown_and_not_covered",
    "RLK405": "tests/unit/planning/checks/test_gpu.py::test_what_the_runtime_cannot_load[held0-runtime0-named0-error]",
    "RLK406": "tests/unit/planning/checks/test_gpu.py::test_unknown_is_never_ok[named0-info]",
    "RLK407": "tests/unit/planning/checks/test_gpu.py::test_an_optional_library_with_untuned_kernels_is_no_gap",
    "RLK408": "tests/unit/planning/checks/test_gpu.py::test_slow_kernels",
    "RLK409": "tests/unit/planning/checks/test_gpu.py::test_hipblaslt_without_kernels_is_a_warning[True]",
    "RLK410": "tests/unit/planning/checks/test_gpu.py::test_what_cannot_be_read_is_unknown_and_not_covered",
    "RLK411": "tests/unit/planning/checks/test_gpu.py::test_device_code_that_an_edit_changed",
    "RLK413": "tests/unit/planning/checks/test_gpu.py::test_auto_with_an_override",
    "RLK421": "tests/unit/planning/checks/test_machine.py::test_no_gpu_no_nodes_no_rocm",
    "RLK422": "tests/unit/vendors/rocm/test_vendor.py::test_a_gpu_without_its_nodes",
    "RLK423": "tests/unit/vendors/rocm/test_vendor.py::test_hazards_of_the_environment",
    "RLK424": "tests/unit/vendors/rocm/test_vendor.py::test_an_incomplete_runtime",
    "RLK425": "tests/unit/vendors/rocm/test_vendor.py::test_incoherence_names_the_library",
    "RLK426": "tests/unit/vendors/rocm/test_vendor.py::test_a_gpu_that_the_prefix_does_not_cover",
    "RLK427": "tests/unit/gpu/amd/test_findings.py::test_a_missing_device_package_is_named",
    "RLK430": "tests/unit/make/test_editing.py::test_code_for_other_gpus_leaves_the_wheel[True]",
    "RLK429": "tests/unit/make/test_editing.py::test_code_for_other_gpus_leaves_the_wheel[True]",
    "RLK428": "tests/unit/test_todays_rocm.py::test_an_archive_that_hides_another_is_named_and_left_out",
    "RLK501": "tests/unit/runs/test_questions.py::test_inspect_tells_of_a_poor_record",
    "RLK502": "tests/unit/test_rare_findings.py::test_a_file_that_record_does_not_list",
    "RLK503": "tests/unit/test_rare_findings.py::test_a_signature",
    "RLK504": "tests/unit/test_rare_findings.py::test_a_tag_that_promises_too_much",
    "RLK505": "tests/unit/runs/test_relink_wheel.py::test_other_machines_code_is_left_alone",
    "RLK506": "tests/unit/runs/test_relink_wheel.py::test_damaged_elf_forbids_writing",
    "RLK507": "tests/unit/cli/test_relinking.py::test_several_wheels",
    "RLK508": "tests/unit/runs/test_relink_wheel.py::test_a_prefix_of_unknown_release",
    "RLK509": "tests/unit/test_rare_findings.py::test_metadata_of_another_wheel",
    "RLK510": "tests/unit/make/test_editing.py::test_where_that_fails_the_whole_file_is_edited",
    "RLK516": "tests/unit/test_unedited.py::test_all_that_cannot_be_edited_is_told_at_once",
    "RLK515": "tests/unit/test_rare_findings.py::test_files_past_the_schemes",
    "RLK520": "tests/unit/planning/checks/test_tags.py::test_a_named_python_that_would_not_install_it",
    "RLK521": "tests/unit/planning/checks/test_tags.py::test_a_wheel_for_another_machine",
    "RLK522": "tests/unit/planning/checks/test_tags.py::test_interpreter_alone",
    "RLK530": "tests/unit/planning/test_site.py::test_the_result_works_wherever_the_packages_are",
    "RLK531": "tests/unit/planning/test_site.py::test_two_versions",
    "RLK532": "tests/unit/planning/test_site.py::test_two_families",
    "RLK533": "tests/unit/planning/test_site.py::test_no_device_package",
    "RLK534": "tests/unit/planning/test_site.py::test_rocm_that_a_pth_file_names",
    "RLK535": "tests/unit/planning/test_site.py::test_a_library_of_a_prefix_keeps_it_here",
    "RLK536": "tests/unit/planning/test_site.py::test_an_environment_that_has_it_not",
    "RLK537": "tests/unit/planning/test_site.py::test_a_library_of_the_system_is_no_replacement",
    "RLK538": "tests/unit/planning/test_site.py::test_the_two_lines_that_help",
    "RLK539": "tests/unit/planning/test_site.py::test_the_requirements_of_wheels_that_belong_together",
    "RLK540": "tests/unit/runs/test_relink_tree.py::test_what_is_no_file_is_left_out",
    "RLK541": "tests/unit/planning/test_site.py::test_a_torch_for_pips_rocm_is_imported_with_the_systems",
    "RLK543": "tests/unit/runs/test_relink_tree.py::test_files_of_others",
    "RLK544": "tests/unit/runs/test_relink_tree.py::test_each_kind_of_file",
    "RLK545": "tests/unit/runs/test_relink_tree.py::test_tree_setuid",
    "RLK551": "tests/unit/indexes/install/test_checking.py::test_a_package_for_another_vendors_gpus",
    "RLK552": "tests/unit/indexes/install/test_dependencies.py::test_cudas_build_is_refused_before_it_is_fetched",
    "RLK553": "tests/unit/indexes/install/test_checking.py::test_a_driver_that_this_machine_has_not",
    "RLK556": "tests/unit/indexes/install/test_checking.py::test_a_pin_on_the_local_version",
    "RLK554": "tests/unit/indexes/install/test_checking.py::test_one_bad_package[RECORD]",
    "RLK555": "tests/unit/indexes/install/test_environment.py::test_a_missing_library",
    "RLK546": "tests/unit/planning/test_site.py::test_without_the_runtime_all_copies_stay",
    "RLK547": "tests/unit/test_todays_rocm.py::test_requirements_that_bring_the_code_of_gpus[all]",
    "RLK550": "tests/unit/planning/test_site.py::test_rocm_in_two_layers",
    "RLK601": "tests/unit/make/test_verification.py::test_another_order_is_a_difference",
    "RLK602": "tests/unit/make/test_verification.py::test_a_loader_that_cannot_be_run",
    "RLK610": "tests/unit/make/test_output.py::test_another_plan_than_the_one_that_was_carried_out",
    "RLK611": "tests/unit/make/test_output.py::test_a_wheel_that_wheel_refuses",
    "RLK603": "tests/unit/system/sandbox/test_start.py::test_off",
    "RLK604": "tests/unit/system/sandbox/test_start.py::test_gaps",
    "RLK605": "tests/unit/test_unedited.py::test_what_the_scan_refuses_never_reaches_patchelf[options0]",
    "RLK606": "tests/unit/make/test_editing.py::test_trust",
    "RLK621": "tests/unit/cli/test_formats.py::test_a_difference_that_no_plan_explains",
    "RLK701": "tests/nix/test_store.py::test_a_prefix_that_is_no_store_path_adds_no_member",
    "RLK702": "tests/nix/test_store.py::test_roots_keep_what_a_wheel_names",
    "RLK703": "tests/nix/test_store.py::test_roots_that_cannot_be_made_are_an_error_of_their_own",
    "RLK711": "tests/unit/test_rare_findings.py::test_what_the_table_does_not_know",
    "RLK712": "tests/unit/test_rare_findings.py::test_what_the_table_does_not_know",
    "RLK713": "tests/unit/test_rare_findings.py::test_what_the_table_does_not_know",
    "RLK717": "tests/unit/report/nix/test_package.py::test_what_nixpkgs_builds_itself_is_named",
}
"""Code → a test that triggers it. tests/conftest.py holds the test to it, tests/unit/test_rules.py that every code is here."""


PRINTED = re.compile(
    r"(?P<level>error|warning|info) (?P<code>RLK\d{3}) (?P<subject>.+?): (?P<message>.+)\n    → (?P<remedy>.+)"
)


def printed(found: Finding) -> str:
    """A finding as the command line prints it, in full."""
    return f"{found.level} {found.code} {found.subject}: {found.message}\n    → {found.remedy}"


def plain_words(text: str) -> list[str]:
    """The words of a sentence, without names, numbers, plurals, and how many of a list are shown."""
    words = (word.strip("(),.;:…") for word in text.split())
    plain = (word for word in words if re.fullmatch(r"[a-z][a-z'-]+", word))
    return [re.sub("(ies|y|s)$", "", word) for word in plain if word not in ("and", "more")]


def same_words(first: str, second: str) -> bool:
    """Whether two printed findings are of one code and say the same of different things."""
    one, other = PRINTED.fullmatch(first), PRINTED.fullmatch(second)
    return (
        one is not None
        and other is not None
        and one["code"] == other["code"]
        and plain_words(one["message"]) == plain_words(other["message"])
        and plain_words(one["remedy"]) == plain_words(other["remedy"])
    )


def unfinished(found: Finding) -> bool:
    """Whether a finding lacks its thing, its reason or its next step, or one of them ends in mid-air."""
    sentences = (found.subject, found.message, found.remedy)
    return any(
        not text.strip() or re.search(r"[\s,;:(\[]$", text) or re.search(r"\bNone\b", text)
        for text in sentences
    )
