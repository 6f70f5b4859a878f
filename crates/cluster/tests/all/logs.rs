//! Job logs: real files where they are at hand, ten rows of each other format as its README describes it, and bad ones.

use std::path::PathBuf;

use windtunnel_cluster::log::{Format, JobLog, LogError, LoggedJob, ReadOptions, date, read, read_from};

const SECOND: u64 = 1_000_000_000;

fn text(format: Format, text: &str, lenient: bool) -> Result<JobLog, LogError> {
    read_from(text.as_bytes(), "a.csv", format, options(lenient))
}

fn options(lenient: bool) -> ReadOptions {
    ReadOptions { lenient, ..ReadOptions::default() }
}

fn refused(format: Format, log: &str) -> String {
    text(format, log, false).expect_err("the log has a fault").to_string()
}

/// (submit, duration, GPUs) in seconds.
fn short(jobs: &[LoggedJob]) -> Vec<(u64, u64, u32)> {
    jobs.iter().map(|job| (job.submit / SECOND, job.duration / SECOND, job.gpus)).collect()
}

fn shared(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/jobs")).join(name)
}

#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn philly_reads_as_a_whole() {
    let path = shared("philly_2017_jobs_pollux.csv.gz");
    let log = read(&path, Format::Philly, ReadOptions::default()).unwrap();
    // Counted with zcat, cut, sort and uniq.
    assert_eq!(log.jobs.len(), 82_247);
    assert_eq!(log.jobs.iter().filter(|job| job.gpus == 1).count(), 76_627);
    assert_eq!(log.jobs.iter().filter(|job| job.gpus == 128).count(), 3);
    let gpu_days: f64 =
        log.jobs.iter().map(|job| job.duration as f64 * f64::from(job.gpus)).sum::<f64>() / 86_400e9;
    assert!((gpu_days - 40_753.27).abs() < 0.01, "{gpu_days}");
    // From 2017-09-04 10:30:41 to 2017-12-22 08:02:11.
    assert_eq!(
        log.jobs.last().map(|job| job.submit / SECOND),
        Some(108 * 86_400 + 21 * 3_600 + 31 * 60 + 30)
    );
    assert!(log.skipped.faults.is_empty());
}

#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn alibaba_2023_has_pods_that_never_ran() {
    let path = shared("alibaba_gpu2023_openb_pod_list_default.csv.gz");
    let error = read(&path, Format::Alibaba2023, ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("`scheduled_time` is missing") && error.contains(".gz:"), "{error}");
    let log = read(&path, Format::Alibaba2023, options(true)).unwrap();
    // 8,152 pods: 1,088 without GPUs; 897 never scheduled.
    let total = log.jobs.len() as u64 + log.skipped.without_gpus + log.skipped.faulty();
    assert_eq!((total, log.skipped.without_gpus), (8_152, 1_088));
    assert!(log.skipped.faulty() > 0 && log.skipped.faulty() <= 897);
    assert_eq!(log.jobs.iter().filter(|job| job.gpus == 8).count(), 44);
}

#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn alibaba_2025_has_instances_from_before_and_after() {
    let path = shared("alibaba_gpu2025_disaggregated_DLRM_trace.csv.gz");
    let log = read(&path, Format::Alibaba2025, options(true)).unwrap();
    assert_eq!(log.skipped.without_gpus, 16_485);
    assert_eq!(log.jobs.len() as u64 + log.skipped.faulty(), 7_386);
    assert!(log.jobs.len() > 100, "{}", log.jobs.len());
}

#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn swf_reads_what_the_archive_has() {
    let path = shared("alea_hpc2n.swf.gz");
    let log = read(&path, Format::Swf, ReadOptions::default()).unwrap();
    // Line 23: 1 0 308434 31405 30 …, asked for 37,980 s.
    let first = log.jobs[0];
    assert_eq!((first.duration, first.gpus, first.estimate), (31_405 * SECOND, 30, Some(37_980 * SECOND)));
    // Counted with zcat and awk: 3,145 rows with a run time, 25 with -1.
    assert_eq!((log.jobs.len(), log.skipped.never_ran, log.skipped.faulty()), (3_145, 25, 0));
    // UnixStartTime is 1027839845, and the first job comes at second 0.
    let fact = log.facts.of(0);
    assert_eq!(fact.submitted.map(date).as_deref(), Some("2002-07-28T07:04:05Z"));
    let name = |number| log.facts.name(number);
    assert_eq!(
        (name(fact.user), name(fact.partition), name(fact.state)),
        (Some("1"), Some("1"), Some("COMPLETED"))
    );
    // They ran for seconds more than they had asked for, as the first of line 40 did.
    assert!(log.remarks.beyond_limit > 100 && log.remarks.most_beyond > 0, "{:?}", log.remarks);
    assert!(log.jobs.is_sorted_by_key(|job| job.submit));
}

#[test]
fn alibaba_2020_is_read_with_and_without_its_header() {
    let rows = "\
a1,tensorflow,1.0,Terminated,1739162.0,1739200.0,600.0,29.3,50.0,MISC
a2,worker,4.0,Terminated,1739170.0,1739270.0,600.0,29.3,100.0,V100
a3,ps,2.0,Terminated,1739170.0,1739270.0,600.0,29.3,,
a4,worker,3.0,Terminated,1739180.0,1739190.0,600.0,29.3,50.0,T4
a5,PyTorchWorker,1.0,Failed,1739181.0,1739182.0,600.0,29.3,800.0,V100M32
a6,tensorflow,1.0,Terminated,1739100.0,1739200.0,600.0,29.3,25.0,MISC
a7,xComputeWorker,10.0,Terminated,1739300.0,1739400.0,600.0,29.3,25.0,P100
a8,evaluator,1.0,Terminated,1739301.0,1739302.5,600.0,29.3,100.0,T4
a9,worker,2.0,Terminated,1739400.0,1739500.0,600.0,29.3,200.0,V100
b1,worker,1.0,Terminated,1739500.0,1739600.0,600.0,29.3,100.0,V100
";
    let header =
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n";
    let log = text(Format::Alibaba2020, rows, false).unwrap();
    assert_eq!(
        short(&log.jobs),
        [
            (0, 100, 1),
            (62, 38, 1),
            (70, 100, 4),
            (80, 10, 2),
            (81, 1, 8),
            (200, 100, 3),
            (201, 1, 1),
            (300, 100, 4),
            (400, 100, 1)
        ]
    );
    assert_eq!(log.skipped.without_gpus, 1);
    let headed = text(Format::Alibaba2020, &format!("{header}{rows}"), false).unwrap();
    assert_eq!(short(&headed.jobs), short(&log.jobs));
    let running = format!("{rows}b2,worker,1.0,Running,1739500.0,,600.0,29.3,100.0,V100\n");
    assert!(refused(Format::Alibaba2020, &running).starts_with("a.csv:11: `end_time` is missing"));
}

#[test]
fn acme_is_read_by_its_columns() {
    let log = "\
job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time
k1,u1,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0
k2,u1,1,8,120,1000,100.0,Pretrain,COMPLETED,2023-05-17 11:01:58+00:00,2023-05-17 11:02:08+00:00,2023-05-17 12:02:08+00:00,,,3600,10.0,28800.0
k3,u2,0,0,16,100,10.0,Other,COMPLETED,2023-05-17 11:02:58+00:00,2023-05-17 11:03:08+00:00,2023-05-17 11:03:18+00:00,,,10,10.0,0.0
k4,u2,1,1,15,100,10.0,Evaluation,CANCELLED,2023-05-17 19:03:58+08:00,2023-05-17 19:04:08+08:00,2023-05-17 19:04:18+08:00,,,10,10.0,10.0
k5,u3,2,16,240,1000,100.0,SFT,COMPLETED,2023-05-18 11:00:58+00:00,2023-05-18 11:01:08+00:00,2023-05-18 11:03:08+00:00,,,120,10.0,1920.0
k6,u3,1,4,60,1000,100.0,Debug,COMPLETED,2023-05-18 11:00:59+00:00,2023-05-18 11:01:08+00:00,2023-05-18 11:03:08+00:00,,,120.5,10.0,482.0
k7,u3,1,2,30,1000,100.0,Debug,TIMEOUT,2023-05-18 11:01:00+00:00,2023-05-18 11:01:08+00:00,2023-05-18 11:03:08+00:00,,,120,10.0,240.0
k8,u4,32,256,3840,1000,100.0,Pretrain,NODE_FAIL,2023-05-18 11:01:01+00:00,2023-05-18 11:01:08+00:00,2023-05-18 11:03:08+00:00,,,120,10.0,30720.0
k9,u4,1,1,15,1000,100.0,Evaluation,COMPLETED,2023-05-18 11:01:02+00:00,2023-05-18 11:01:08+00:00,2023-05-18 11:03:08+00:00,,,120,10.0,120.0
l1,u4,1,1,15,1000,100.0,Evaluation,COMPLETED,2023-05-18 11:01:03+00:00,2023-05-18 11:01:08+00:00,2023-05-18 11:03:08+00:00,,,120,10.0,120.0
";
    let log = text(Format::Acme, log, false).unwrap();
    assert_eq!(short(&log.jobs[..3]), [(0, 18, 64), (60, 3_600, 8), (180, 10, 1)]);
    assert_eq!((log.jobs.len(), log.skipped.without_gpus), (9, 1));
    assert_eq!(log.jobs[4].duration, 120 * SECOND + SECOND / 2);
}

#[test]
fn helios_is_read_by_its_columns() {
    let log = "\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
1425512,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
1425513,uzqls,vcpDC,1,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-17 14:15:21,675233,0
1425514,ua,vcA,8,64,1,COMPLETED,2020-06-09 18:41:29,2020-06-09 18:42:29,2020-06-09 18:43:29,60,60
1425515,ub,vcA,0,4,1,COMPLETED,2020-06-09 18:41:30,2020-06-09 18:41:30,2020-06-09 18:41:31,1,0
1425516,uc,vcA,32,256,4,COMPLETED,2020-06-09 18:41:31,2020-06-09 18:41:31,2020-06-09 18:41:31,0,0
1425517,ud,vcB,2,8,1,TIMEOUT,2020-06-09 18:41:32,2020-06-09 18:41:32,2020-06-09 18:41:42,10,0
1425518,ue,vcB,16,128,2,COMPLETED,2020-06-09 18:41:33,2020-06-09 18:41:33,2020-06-09 18:41:43,10,0
1425519,uf,vcB,1,4,1,NODE_FAIL,2020-06-09 18:41:34,2020-06-09 18:41:34,2020-06-09 18:41:44,10,0
1425520,ug,vcC,1,4,1,COMPLETED,2020-06-09 18:41:35,2020-06-09 18:41:35,2020-06-09 18:41:45,10,0
";
    let found = text(Format::Helios, log, false).unwrap();
    assert_eq!(short(&found.jobs[..4]), [(0, 36_848, 1), (26, 249, 4), (27, 675_233, 1), (28, 60, 8)]);
    // A job of no time still ran.
    assert_eq!((found.jobs[4].duration, found.skipped.without_gpus), (1, 1));
}

#[test]
fn slurm_is_read_by_the_names_of_its_fields() {
    let log = "\
JobID|Submit|Start|End|Elapsed|AllocTRES|State|Priority|Timelimit
100|2024-03-01T10:00:00|2024-03-01T10:00:05|2024-03-01T11:00:05|01:00:00|billing=64,cpu=64,gres/gpu:h100=8,gres/gpu=8,mem=1T,node=1|COMPLETED|1000|1-00:00:00
100.batch|2024-03-01T10:00:05|2024-03-01T10:00:05|2024-03-01T11:00:05|01:00:00|cpu=64,gres/gpu=8,node=1|COMPLETED||
100.0|2024-03-01T10:00:05|2024-03-01T10:00:05|2024-03-01T11:00:05|01:00:00|cpu=64,gres/gpu=8,node=1|COMPLETED||
101|2024-03-01T10:01:00|2024-03-01T10:01:00|2024-03-01T10:02:00|00:01:00|billing=4,cpu=4,mem=16G,node=1|COMPLETED|900|00:10:00
102|2024-03-01T10:02:00|2024-03-01T10:03:00|2024-03-03T12:05:04|2-02:02:04|billing=512,cpu=512,gres/gpu=64,node=8|TIMEOUT|2000|UNLIMITED
103_1|2024-03-01T10:03:00|2024-03-01T10:03:00|2024-03-01T10:03:30|00:00:30|cpu=8,gres/gpu:a100=1,node=1|FAILED|10|00:30:00
103_2|2024-03-01T10:03:00|2024-03-01T10:03:00|2024-03-01T10:03:31|00:00:31|cpu=8,gres/gpu:a100=1,gres/gpu:l4=2,node=1|FAILED|10|00:30:00
104|2024-03-01T10:04:00|2024-03-01T10:04:00|2024-03-01T10:05:00|00:01:00|cpu=8,gres/gpu=1,node=1|COMPLETED|10|30:00
105|2024-03-01T10:05:00|2024-03-01T10:06:00|2024-03-01T10:07:00|00:01:00|cpu=8,gres/gpu=2,node=1|PREEMPTED|10|00:30:00
106|2024-03-01T10:06:00|2024-03-01T10:06:00|2024-03-01T10:07:00|00:01:00|cpu=8,gres/gpu=4,node=1|COMPLETED|10|00:30:00
";
    let found = text(Format::Slurm, log, false).unwrap();
    let expected = [
        (0, 3_600, 8),
        (120, 180_124, 64),
        (180, 30, 1),
        (180, 31, 3),
        (240, 60, 1),
        (300, 60, 2),
        (360, 60, 4),
    ];
    assert_eq!(short(&found.jobs), expected);
    assert_eq!((found.jobs[0].priority, found.jobs[0].estimate), (1_000, Some(86_400 * SECOND)));
    assert_eq!((found.jobs[1].estimate, found.jobs[4].estimate), (None, Some(1_800 * SECOND)));
    assert_eq!((found.skipped.without_gpus, found.skipped.steps), (1, 2));
    let pending = log.replace("|01:00:00|billing=64", "||billing=64").replace("T11:00:05||", "Unknown||");
    let pending = pending.replace("2024-03-01Unknown", "Unknown");
    assert!(
        refused(Format::Slurm, &pending).starts_with("a.csv:2: `End` is missing"),
        "{}",
        refused(Format::Slurm, &pending)
    );
}

#[test]
fn a_job_cancelled_as_it_waited_has_no_time() {
    // As sacct prints it, of newer Slurm without a start, of older with that of its end.
    let log = "\
JobID|Submit|Start|End|ElapsedRaw|AllocTRES|ReqTRES|State
1|2024-03-01T10:00:00|2024-03-01T10:00:05|2024-03-01T10:00:05|0|gres/gpu=8|gres/gpu=8|FAILED
2|2024-03-01T10:01:00|None|2024-03-01T10:02:00|0||gres/gpu=8|CANCELLED by 7
3|2024-03-01T10:01:00|2024-03-01T10:02:00|2024-03-01T10:02:00|0||gres/gpu=8|CANCELLED by 7
";
    for lenient in [false, true] {
        let found = text(Format::Slurm, log, lenient).unwrap();
        assert_eq!((found.skipped.never_ran, found.skipped.faulty()), (2, 0));
        // One that ran for less than a second did run.
        assert_eq!(found.jobs.iter().map(|job| (job.duration, job.gpus)).collect::<Vec<_>>(), [(1, 8)]);
    }
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let header = "timestamp,duration,num_gpus,gpu_time,cluster\n";
    let row = "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n";
    let cases = [
        (format!("{header}{row}2017-10-09 07:01:55,,1,66.0,x\n"), "a.csv:3: `duration` is missing"),
        (format!("{header}{row},66.0,1,66.0,x\n"), "a.csv:3: `timestamp` is missing"),
        (
            format!("{header}{row}{row}soon,66.0,1,66.0,x\n"),
            "a.csv:4: `timestamp`: expected an instant, found `soon`",
        ),
        (
            format!("{header}2017-10-09 07:01:55,-6,1,66.0,x\n"),
            "a.csv:2: `duration`: expected a time in seconds of at least 0, found `-6`",
        ),
        (
            format!("{header}2017-10-09 07:01:55,6,many,66.0,x\n"),
            "a.csv:2: `num_gpus`: expected a number of GPUs, found `many`",
        ),
        (format!("{header}2017-10-09 07:01:55\n"), "a.csv:2: `duration` is missing"),
    ];
    for (log, message) in cases {
        let error = refused(Format::Philly, &log);
        assert!(error.starts_with(message), "{error}");
        assert!(error.contains("hint: `lenient: true`"), "{error}");
    }
    let renamed = header.replace("cluster", "vc");
    let error = refused(Format::Philly, &format!("{renamed}{row}"));
    assert!(error.starts_with("a.csv:1: unknown column `vc`, expected `timestamp`, `duration`"), "{error}");
    assert_eq!(text(Format::Philly, &format!("{renamed}{row}"), true).unwrap().jobs.len(), 1);
    for lenient in [false, true] {
        let error = text(Format::Helios, &format!("{header}{row}"), lenient).unwrap_err().to_string();
        assert!(error.starts_with("a.csv:1: there is no column `gpu_num`, found `timestamp`"), "{error}");
    }
    let error = refused(Format::Philly, header);
    assert_eq!(error, "a.csv: there is no job with GPUs in the log");
    let error = refused(Format::Swf, "; comment\n1 2 3\n");
    assert!(error.starts_with("a.csv:2: expected 18 fields, found 3"), "{error}");
    let backwards = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n\
                     p,1,1,1,1000,,LS,Running,5,6,7\n";
    let error = refused(Format::Alibaba2023, backwards);
    assert!(error.starts_with("a.csv:2: `deletion_time` (6) lies before its start (7)"), "{error}");
}

#[test]
fn lines_of_dos_files_are_counted_alike() {
    let log = "timestamp,duration,num_gpus,gpu_time,cluster\r\n2017-10-09 07:01:55,66.0,1,66.0,a\r\n\r\n\
               2017-10-09 07:01:56,,1,66.0,a\r\n";
    assert!(refused(Format::Philly, log).starts_with("a.csv:4: `duration` is missing"));
    let log = text(Format::Philly, log, true).unwrap();
    assert_eq!((log.jobs[0].line, log.jobs.len()), (2, 1));
}

#[test]
fn lenient_reading_counts_what_it_leaves_out() {
    let log = "timestamp,duration,num_gpus,gpu_time,cluster\n\
               2017-10-09 07:01:55,66.0,1,66.0,a\n\
               2017-10-09 07:01:56,,1,66.0,a\n\
               2017-10-09 07:01:57,5,0,66.0,a\n\
               2017-10-09 07:01:58,,1,66.0,a\n\
               later,1,1,66.0,a\n\
               2017-10-09 07:01:50,7.25,2,66.0,a\n";
    let log = text(Format::Philly, log, true).unwrap();
    assert_eq!(short(&log.jobs), [(0, 7, 2), (5, 66, 1)]);
    assert_eq!(log.jobs[0].line, 7);
    assert_eq!(
        log.skipped.to_string(),
        "2 x `duration` is missing (first in line 3), 1 x `timestamp` is not an instant (first in line 6), 1 without GPUs"
    );
}

#[test]
fn what_cannot_be_told_apart_is_refused() {
    let header = "timestamp,duration,num_gpus,gpu_time,cluster\n";
    let row = "2017-10-09 07:01:55,66.0,1,66.0,a\n";
    // A comma too many: 66 GPUs for a second.
    let log = format!("{header}{row}2017-10-09 07:01:55,1,066.0,8,66.0,a\n");
    assert!(refused(Format::Philly, &log).starts_with("a.csv:3: expected 5 fields, found 6\n"));
    let found = text(Format::Philly, &log, true).unwrap();
    assert_eq!((found.jobs.len(), found.skipped.faulty()), (1, 1));
    // Nothing stands behind the last comma.
    assert_eq!(
        text(Format::Philly, &format!("{header}{}", row.replace("a\n", "a,\n")), false).unwrap().jobs.len(),
        1
    );
    // A quotation mark that is not closed takes the rest of the file along.
    let log = format!("{header}{}{row}{row}", row.replace(",a", ",\"a"));
    for lenient in [false, true] {
        let error = text(Format::Philly, &log, lenient).unwrap_err().to_string();
        assert!(error.starts_with("a.csv:2: a quoted value goes on beyond the end of the line"), "{error}");
    }
}

#[test]
fn slurm_quotes_nothing() {
    let row = |job: u32, name: &str| format!("{job}|{name}|2024-03-01T10:00:0{job}|10|gres/gpu=1\n");
    let log = "JobID|JobName|Submit|ElapsedRaw|AllocTRES\n".to_owned();
    let log = log + &row(1, "a") + &row(2, "\"train") + &row(3, "b") + &row(4, "\"c\"");
    assert_eq!(short(&text(Format::Slurm, &log, false).unwrap().jobs), [0, 1, 2, 3].map(|at| (at, 10, 1)));
}

#[test]
fn alibaba_2020_knows_its_header_in_any_order() {
    let log = "task_name,job_name,inst_num,status,start_time,end_time,plan_gpu,plan_mem,plan_cpu,gpu_type\n\
               w,j,2,T,1,11,100,29,600,T4\n";
    for lenient in [false, true] {
        let found = text(Format::Alibaba2020, log, lenient).unwrap();
        assert_eq!((short(&found.jobs), found.skipped.faulty()), (vec![(0, 10, 2)], 0));
    }
    let log = "j,w,65536,T,1,11,600,29,6553600,T4\n";
    let error = refused(Format::Alibaba2020, log);
    assert!(error.starts_with("a.csv:1: 4294967296 GPUs are too many"), "{error}");
}

#[test]
fn comments_of_swf_are_in_any_encoding() {
    let mut log = b"\xef\xbb\xbf; Universit\xe9\r\n".to_vec();
    log.extend_from_slice(b"1 0 0 10 4 -1 -1 4 20 -1 1 1 1 1 1 1 -1 -1 ; \xe9\r\n1 2 3\n");
    let read = |lenient| read_from(log.as_slice(), "a.swf", Format::Swf, options(lenient));
    assert!(read(false).unwrap_err().to_string().starts_with("a.swf:3: expected 18 fields, found 3"));
    let found = read(true).unwrap();
    assert_eq!((short(&found.jobs), found.skipped.faulty()), (vec![(0, 10, 4)], 1));
}

/// Rows that are jobs, with the rows that are none: every row of a log is counted once.
fn all(log: &JobLog) -> u64 {
    let skipped = &log.skipped;
    log.jobs.len() as u64 + skipped.without_gpus + skipped.never_ran + skipped.steps + skipped.faulty()
}

#[test]
fn fields_behind_those_of_swf_are_not_read_and_counted() {
    // As Alea appends the memory, the hosts and more; one cancelled as it waited, one whose end nobody knows.
    let log = "\
; UnixStartTime: 1356994800
; MaxProcs: 1000
1 0 5 100 8 -1 4096 8 3600 4096 1 17 3 -1 2 1 -1 -1 gpu=8 host1,host2 -1
2 10 5 200 4 -1 4096 4 -1 4096 0 18 3 -1 2 2 -1 -1 gpu=4 host1 -1
3 20 -1 -1 4 -1 4096 4 60 4096 5 18 3 -1 2 2 -1 -1 gpu=4 -1 -1
4 30 90 0 4 -1 4096 4 60 4096 5 18 3 -1 2 2 -1 -1 gpu=4 -1 -1
5 40 1 50 -1 -1 4096 2 40 4096 1 -1 -1 -1 -1 -1 -1 -1
";
    for lenient in [false, true] {
        let found = text(Format::Swf, log, lenient).unwrap();
        assert_eq!(short(&found.jobs), [(0, 100, 8), (10, 200, 4), (40, 50, 2)]);
        assert_eq!((found.skipped.never_ran, found.remarks.appended, all(&found)), (2, 2, 5));
        assert_eq!((found.remarks.beyond_limit, found.remarks.most_beyond), (1, 10 * SECOND));
        let said = |job: usize| {
            let fact = found.facts.of(job);
            let numbers = [fact.user, fact.account, fact.partition, fact.queue, fact.state];
            (numbers.map(|number| found.facts.name(number)), fact.submitted.map(date))
        };
        let of_first = [Some("17"), Some("3"), Some("1"), Some("2"), Some("COMPLETED")];
        assert_eq!(said(0), (of_first, Some("2012-12-31T23:00:00Z".to_owned())));
        assert_eq!(said(2).0, [None, None, None, None, Some("COMPLETED")]);
        assert_eq!(found.facts.partitions(), [("1", 1), ("2", 1)]);
    }
}

#[test]
fn slurm_says_whose_a_job_is_and_what_still_runs() {
    let log = "\
JobID|JobName|User|Account|Partition|QOS|Submit|Start|End|ElapsedRaw|Timelimit|AllocTRES|State
1|a|ann|bio|a100|normal|2024-03-01T10:00:00|2024-03-01T10:00:05|2024-03-01T10:01:45|100|00:01:00|gres/gpu=8|COMPLETED
1.batch|batch||bio|||2024-03-01T10:00:05|2024-03-01T10:00:05|2024-03-01T10:01:45|100||gres/gpu=8|COMPLETED
2|b|bob|bio|h100|high|2024-03-01T10:00:01|2024-03-01T10:00:05|Unknown|500|01:00:00|gres/gpu=4|RUNNING
3|c|bob||h100|high|2024-03-01T10:00:02|2024-03-01T10:00:05|2024-03-01T10:01:05|60|00:01:00|gres/gpu=4|CANCELLED by 1000
4|d|cy|phy|a100|normal|2024-03-01T10:00:03|Unknown|Unknown|0|01:00:00|gres/gpu=4|PENDING
5|e|cy|phy|a100|normal|2024-03-01T10:00:04|2024-03-01T10:00:05|Unknown|500|01:00:00||RUNNING
";
    let found = text(Format::Slurm, log, false).unwrap();
    assert_eq!(short(&found.jobs), [(0, 100, 8), (1, 500, 4), (2, 60, 4)]);
    assert_eq!((found.skipped.steps, found.skipped.never_ran, found.skipped.without_gpus), (1, 1, 1));
    assert_eq!((all(&found), found.remarks.running), (6, 1));
    assert_eq!((found.remarks.beyond_limit, found.remarks.most_beyond), (1, 40 * SECOND));
    // Or without the one that still ran, whose end nobody knows.
    let leave_running = ReadOptions { leave_running: true, ..ReadOptions::default() };
    let ended = read_from(log.as_bytes(), "a.csv", Format::Slurm, leave_running).unwrap();
    assert_eq!(short(&ended.jobs), [(0, 100, 8), (2, 60, 4)]);
    assert_eq!((ended.skipped.running, ended.remarks.running), (1, 0));
    let names = |job: usize| {
        let fact = found.facts.of(job);
        [fact.user, fact.account, fact.partition, fact.queue, fact.state]
            .map(|number| found.facts.name(number))
    };
    assert_eq!(names(0), [Some("ann"), Some("bio"), Some("a100"), Some("normal"), Some("COMPLETED")]);
    assert_eq!(names(2), [Some("bob"), None, Some("h100"), Some("high"), Some("CANCELLED")]);
    assert_eq!(found.facts.partitions(), [("h100", 2), ("a100", 1)]);
    assert_eq!(found.facts.of(1).submitted.map(date).as_deref(), Some("2024-03-01T10:00:01Z"));
}

#[test]
fn facts_follow_their_jobs_when_a_log_is_out_of_order() {
    let log = "timestamp,duration,num_gpus,gpu_time,cluster\n\
               2017-10-09 07:01:55,66.0,1,66.0,late\n\
               2017-10-09 07:01:50,7.25,2,66.0,early\n";
    let found = text(Format::Philly, log, false).unwrap();
    let partition = |job: usize| found.facts.name(found.facts.of(job).partition);
    assert_eq!((partition(0), partition(1), partition(2)), (Some("early"), Some("late"), None));
    // A clock of the log's own has no date.
    let log = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n\
               p,1,1,1,1000,,LS,Succeeded,5,9,7\n";
    assert_eq!(text(Format::Alibaba2023, log, false).unwrap().facts.of(0).submitted, None);
}

#[test]
fn rows_that_were_cut_off_or_never_written_are_faults() {
    let cases = [
        (Format::Slurm, "JobID|Submit|ElapsedRaw|AllocTRES", "1|2024-03-01T10:00:00|10|gres/gpu=8"),
        (Format::Philly, "timestamp,duration,num_gpus,gpu_time,cluster", "2017-10-09 07:01:55,66.0,1,66.0,a"),
        (Format::Alibaba2020, "job_name,task_name,inst_num,start_time,end_time,plan_gpu", "j,w,2,1,11,100"),
        (Format::Swf, "; comment", "1 0 5 100 8 -1 4096 8 3600 4096 1 17 3 -1 2 1 -1 -1"),
    ];
    for (format, header, row) in cases {
        let good = text(format, &format!("{header}\n{row}\n"), false).unwrap();
        assert_eq!(good.jobs.len(), 1, "{format:?}");
        // Zeros in place of text, as after a crash; and every place at which a row may end too early.
        let zeros = "\0".repeat(row.len());
        let error = refused(format, &format!("{header}\n{row}\n{zeros}\n"));
        assert!(error.starts_with("a.csv:3: the row holds bytes of value 0"), "{format:?}: {error}");
        let separators = row
            .char_indices()
            .filter(|(_, c)| matches!(c, '|' | ',') || (format == Format::Swf && *c == ' '));
        for (end, _) in separators {
            let log = format!("{header}\n{row}\n{}\n", &row[..end]);
            assert!(refused(format, &log).starts_with("a.csv:3: "), "{format:?}: {log}");
            let found = text(format, &log, true).unwrap();
            assert_eq!((found.jobs.len(), found.skipped.faulty()), (1, 1), "{format:?}: {log}");
        }
    }
}

#[test]
fn a_log_in_utf_16_is_called_so() {
    let log = "JobID|Submit|ElapsedRaw|AllocTRES\n1|2024-03-01T10:00:00|10|gres/gpu=8\n";
    for mark in ["", "\u{feff}"] {
        let wide: Vec<u8> = format!("{mark}{log}").encode_utf16().flat_map(u16::to_le_bytes).collect();
        for lenient in [false, true] {
            let error = read_from(wide.as_slice(), "a.csv", Format::Slurm, options(lenient)).unwrap_err();
            let error = error.to_string();
            assert!(
                error.starts_with("a.csv: the file is in UTF-16, expected UTF-8\n\nhint: `iconv"),
                "{error}"
            );
        }
    }
}
